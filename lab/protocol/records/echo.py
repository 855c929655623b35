"""A program's lines as a terminal shows them: readable records, without TensorFlow's own lines.

The records and the log of a run contain every line unchanged.
"""

from __future__ import annotations

import re
from typing import Final

from lab.base.text import short, visible
from lab.protocol.records import Record, Value

NOTICE: Final = "TensorFlow's own lines are in the log of the run"
"""The line that is shown once instead of TensorFlow's own lines."""

_TENSORFLOW: Final = re.compile(
    rb"(?:(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: )?[IWE] tensorflow/"
    rb"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWE] "  # TensorFlow 2.15 and older
    # A line of Abseil from another Python file may be the program's.
    rb"|[IWE]\d{4} \d\d:\d\d:\d+\.\d+ +\d+ (?:(?!\w+\.py:)|(?:deprecation|cross_device_ops"
    rb"|mirrored_strategy|collective_all_reduce_strategy|parameter_server_strategy|estimator"
    rb"|parameter_server_strategy_v2|cluster_coordinator|basic_session_run_hooks|monitored_session"
    rb"|session_manager|saver|supervisor|ag_logging|run_config|estimator_training)\.py:"
    rb"|training\.py:\d+\] (?:Start Tensorflow server|Waiting \d|Running training and eval))"
    rb"|WARNING: All log messages before absl::InitializeLog"
    rb"|(?:INFO|WARNING|ERROR):tensorflow:"
    rb"|WARNING:absl:(?:You are saving|Compiled the loaded|Found untraced|At this time, the v2\.11)"
    rb"|To enable the following instructions: "
    rb"|Additional GRPC error information from remote target "  # further lines of an error
    rb"|:?[A-Z_]+:Error received from peer )"
)

_BELOW: Final = re.compile(
    rb"\s+\[\["  # the graph's node, below an error: `[[{{node gradients/add}}]]`
    rb"|Recent warning and error logs:|  [IWE]\d{4} [\d:.]+ "
    rb"|Skipping registering GPU devices\.\.\."
    rb"|Relying on driver to perform ptx compilation|Modify \$PATH to customize ptxas location"
    rb"|This message will be only logged once"
    rb"|Please report this to the TensorFlow team|To silence this warning, decorate the function"
    rb"|/job:\w+/replica:\d+/task:\d+$"  # a task for which the others wait
    rb"|\tfor Tuple type infernce function \d|\twhile inferring type of node "
    rb"|Cause: .*"
    rb"|Instead of:$|results = tf\.|Use:$"  # of advice below "Instructions for updating:"
)
"""Further lines of one message, which have no mark."""

_ADVICE: Final = b"Instructions for updating:"
_WARNING: Final = re.compile(rb"\S*/(?:site|dist)-packages/\S+:\d+: \w+Warning: ")
"""A warning by Python's `warnings` in a library; a line of the library's source follows."""

_CONFIG: Final = re.compile(
    rb"(?:INFO:tensorflow:|I\d{4} [\d:.]+ +\d+ estimator\.py:\d+\] )Using config: \{"
)
_CONFIG_LINES: Final = 40
"""Maximum further lines of Estimator's configuration, which ends with its last bracket."""

_DUMP: Final = re.compile(
    rb"(?:  )*(?:\w+ \{|\}|\w+: (?:true|false|-?\d+|[A-Z]+_[A-Z\d_]+|\".*\"))"
    rb"| is neither a subtype nor a supertype of the combined inputs preceding it:"
)
_DUMP_FOLLOWS: Final = re.compile(
    rb".* goo\.gle/debugproto|.*\] SessionOptions: device_count \{"
    rb"|.*] Type inference failed\..*:"
)
"""A line before a message of protocol buffers, which ends with an empty line."""

_NUMBERS: Final = (
    ("local_step", "local step", "{:,}"),
    ("global_step", "global step", "{:,}"),
    ("loss", "loss", "{:.4f}"),
    ("accuracy", "accuracy", "{:.4f}"),
    ("staleness", "staleness", "{:,}"),
)


class TensorFlowLines:
    """Recognizes the lines of TensorFlow and other libraries in a log; call it for each line."""

    def __init__(self) -> None:
        self._above = b""  # the line above, if it is a library's
        self._open_brackets = 0
        self._config_lines = 0
        self._is_in_dump = False

    def has(self, line: bytes) -> bool:
        """Whether the next line is a library's; a fatal error counts as the program's."""
        line = line.rstrip()
        is_own = not (
            self._continues_config(line)
            or self._continues_dump(line)
            or _TENSORFLOW.match(line)
            or _WARNING.match(line)
        )
        if is_own and (not self._above or not self._continues(line)):
            self._above = b""
            return False
        self._above = line or self._above
        return True

    def _continues(self, line: bytes) -> bool:
        """Whether a line continues the message of the library's line above."""
        if self._above == _ADVICE:
            return True
        if _WARNING.match(self._above):
            return line.startswith(b"  ")
        return line == _ADVICE or _BELOW.match(line) is not None

    def _continues_config(self, line: bytes) -> bool:
        """Whether a line continues Estimator's configuration, whose brackets are not closed."""
        if _CONFIG.match(line):
            self._open_brackets, self._config_lines = 0, _CONFIG_LINES
        elif not self._config_lines or not self._open_brackets:
            return False
        self._config_lines -= 1
        self._open_brackets += line.count(b"{") - line.count(b"}")
        return True

    def _continues_dump(self, line: bytes) -> bool:
        """Whether a line continues a message of protocol buffers."""
        was_in_dump, self._is_in_dump = self._is_in_dump, bool(_DUMP_FOLLOWS.fullmatch(line))
        if was_in_dump and _DUMP.fullmatch(line):
            self._is_in_dump = True
            return True
        return was_in_dump and not line


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
