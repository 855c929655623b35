"""The record grammar: one logfmt line for people and programs.

A record is one line of at most 4,096 bytes, so that one `write` to a pipe is atomic (POSIX:
PIPE_BUF)::

    lab kind=step run=20261121-0810-async-7f3a job_name=worker task_index=0 seq=17 epoch=9 …

A record has only the fields of `FIELDS`, each with one type. A value with a space, a quotation
mark, an equals sign, a backslash or a character other than printable ASCII is a JSON string. A
whole number fits into 64 bits with its sign.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Final

from lab.base.units import is_in_range

PREFIX: Final = "lab kind="
MAX_BYTES: Final = 4096
_LONGEST_CHARACTER: Final = 12
"""The most bytes of a character of a message in JSON: two escapes."""
KINDS: Final = ("start", "step", "epoch", "eval", "result", "final", "event")

Value = str | int | float
Record = dict[str, Value]
"""Field to value, in the order of `FIELDS`, without the fields that do not apply."""

FIELDS: Final[Mapping[str, Callable[[str], Value]]] = {
    "kind": str,
    "run": str,
    "attempt": int,
    "job_name": str,
    "task_index": int,
    "seq": int,
    "epoch": int,  # 0-based
    "local_step": int,
    "global_step": int,  # directly after this step's increment
    "loss": float,
    "accuracy": float,  # a fraction, 0 to 1
    "staleness": int,  # updates by other workers between this step's read and its update
    "staleness_sum": int,  # of this attempt's steps from the first one to `local_step`
    "probe": int,  # the value of the probe variable: updates that reached the parameters
    "batch_size": int,
    "learning_rate": float,  # before decay
    "examples": int,
    "step_time_s": float,
    "wait_time_s": float,
    "time_unix": float,
    "elapsed_s": float,
    "name": str,  # the name of a result
    "value": float,
    "low": float,  # the limits of the expected value, both included
    "high": float,
    "status": str,
    "message": str,
}

_PAIR = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?: |$)')
# Printable ASCII without space, quotation mark, equals sign and backslash.
_PLAIN = re.compile(r"[!#-<>-\[\]-~]+")


class RecordError(ValueError):
    """A record breaks the grammar; the message names the field."""


def format_record(fields: Mapping[str, Value]) -> str:
    """Format a record as one line, without a line end.

    Args:
        fields: Field to value, with `kind`. A long message is cut.

    Raises:
        RecordError: An unknown field or kind, a value of the wrong type, or a line that is too
            long even without its message.
    """
    unknown = fields.keys() - FIELDS.keys()
    if unknown:
        raise RecordError(f"unknown field {min(unknown)!r}")
    if fields.get("kind") not in KINDS:
        raise RecordError(f"unknown kind {fields.get('kind')!r}")
    line, message = _line(fields), str(fields.get("message", ""))
    while (excess := len(line) - MAX_BYTES + 1) > 0:
        if not message:
            raise RecordError(f"longer than {MAX_BYTES} bytes")
        message = message[: -math.ceil(excess / _LONGEST_CHARACTER)]
        line = _line({**fields, "message": f"{message}…" if message else ""})
    return line


def _line(fields: Mapping[str, Value]) -> str:
    """Return the line, of any length. It is ASCII, so each character is one byte."""
    return "lab " + " ".join(
        f"{name}={_text(name, fields[name])}" for name in FIELDS if name in fields
    )


def parse_record(line: str) -> Record | None:
    """Parse a line; return None if it is not a record.

    Raises:
        RecordError: The line begins like a record, but breaks the grammar.
    """
    if not line.startswith(PREFIX):
        return None
    record: Record = {}
    position = len("lab ")
    text = line.rstrip("\r\n")
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None:
            raise RecordError(f"not a field at column {position + 1}")
        name, raw = pair.group(1), pair.group(2)
        if name not in FIELDS:
            raise RecordError(f"unknown field {name!r}")
        if name in record:
            raise RecordError(f"field {name!r} twice")
        record[name] = _value(name, raw)
        position = pair.end()
    if record["kind"] not in KINDS:
        raise RecordError(f"unknown kind {record['kind']!r}")
    return record


def _text(name: str, value: Value) -> str:
    kind = FIELDS[name]
    if kind is str and isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=True)
    if kind is not str and isinstance(value, (int, float)) and not isinstance(value, bool):
        if kind is float:
            return repr(float(value))  # the shortest text that parses to the same number
        if isinstance(value, int) and is_in_range(value):
            return str(value)
    raise RecordError(f"{name} cannot be {value!r}")


def _value(name: str, raw: str) -> Value:
    try:
        text = json.loads(raw) if raw.startswith('"') else raw
        value = FIELDS[name](text)
    except ValueError as error:
        raise RecordError(f"{name} has no readable value: {raw!r}") from error
    if isinstance(value, int) and not is_in_range(value):
        raise RecordError(f"{name} does not fit into 64 bits")
    return value
