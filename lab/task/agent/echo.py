"""A program's lines as a terminal shows them: readable records, without TensorFlow's own lines.

The records and the log of a run contain every line unchanged.
"""

from __future__ import annotations

import re
from typing import Final

from lab.records import Record, Value
from lab.task.text import short, visible

NOTICE: Final = "TensorFlow's own lines are in the log of the run"
"""The line that is shown once instead of TensorFlow's own lines."""

_TENSORFLOW: Final = re.compile(
    rb"(?:(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: )?[IWE] tensorflow/"
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWE] "  # TensorFlow 2.15 and older
    rb"|[IWE]\d{4} \d\d:\d\d:\d+\.\d+ "
    rb"|WARNING: All log messages before absl::InitializeLog"
    rb"|(?:INFO|WARNING):tensorflow:"
    rb"|To enable the following instructions: "
    rb"|Additional GRPC error information from remote target "  # further lines of an error
    rb"|:?[A-Z_]+:Error received from peer )"
)

_NODE: Final = re.compile(rb"\s+\[\[")
"""The graph's node, in a line below an error: `[[{{node gradients/add}}]]`."""

_NUMBERS: Final = (
    ("local_step", "local step", "{:,}"),
    ("global_step", "global step", "{:,}"),
    ("loss", "loss", "{:.4f}"),
    ("accuracy", "accuracy", "{:.4f}"),
    ("staleness", "staleness", "{:,}"),
)


class TensorFlowLines:
    """Recognizes the lines of TensorFlow's runtime in a log; call it for each line in order."""

    def __init__(self) -> None:
        self._advice_follows = False
        self._is_in_error = False

    def has(self, line: bytes) -> bool:
        """Whether the next line is TensorFlow's; a fatal error counts as the program's."""
        if self._advice_follows:
            self._advice_follows = False
            return True
        # After a deprecation warning, TensorFlow prints a line of advice without any mark.
        self._advice_follows = line.rstrip() == b"Instructions for updating:"
        is_below = self._is_in_error and _NODE.match(line) is not None
        self._is_in_error = is_below or _TENSORFLOW.match(line) is not None
        return self._advice_follows or self._is_in_error


def readable(record: Record) -> str:
    """Format a record as text: `epoch 1: local step 550, global step 1,580, loss 2.9156`.

    Returns:
        Text that is safe to show; "" if the record has nothing to show.
    """
    name = str(record.get("name", ""))
    parts = [
        f"{label} {form.format(record[field])}"
        for field, label, form in _NUMBERS
        if field in record
    ]
    if "value" in record:
        parts.append(f"{name} {_short(record['value'])}")
    text = ", ".join(parts)
    if message := str(record.get("message", "")):
        text = f"{text} ({message})" if text else message
    kind = record["kind"]
    if kind == "epoch" and text and isinstance(epoch := record.get("epoch"), int):
        text = f"epoch {epoch + 1}: {text}"
    if kind in {"eval", "final"} and text:
        text = f"{'test' if kind == 'eval' else 'end'}: {text}"
    return short(visible(text))


def _short(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
