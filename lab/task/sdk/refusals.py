"""Recognize the error of a step that TensorFlow refused by mistake.

Each server stores the request ids of the last 100,000 steps. It takes a request with a stored id
for a retry, and refuses it. TensorFlow draws the ids from a generator, which it seeds with 32 bits
in the new thread of each step. So two of `n` steps within the last 100,000 have the same id with
a probability of about `n * n / 2 / 2**32`. The server refuses the second one although it is new.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

# The pattern matches only at the beginning of a line: TensorFlow also quotes earlier warnings, with
# a prefix. Only a refused RunGraph proves that the task ran nothing of the step. After a refused
# RecvTensor a part may be half done, and a refused RunStep may have run before.
_REFUSED: Final = re.compile(
    r"^(?:[A-Z_]+: )?The same RunGraph \(Worker\) request was received twice", re.MULTILINE
)
_RETRIES: Final = "GRPC_MAX_RETRIES"


def is_false_refusal(message: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a task refused its part of a step, and ran nothing of that part.

    Args:
        message: The text of an `AbortedError`, or of the `CancelledError` of another task's part.
        environment: The environment variables; those of the process by default. If
            `GRPC_MAX_RETRIES` allows retries, the refused request may be a true retry.
    """
    variables = os.environ if environment is None else environment
    return variables.get(_RETRIES, "0") == "0" and _REFUSED.search(message) is not None
