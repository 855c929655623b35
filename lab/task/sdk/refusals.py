"""TensorFlow's false refusal of a step, told apart from every other error.

Each server keeps the request ids of the last 100,000 steps and refuses an id that it has seen. It
takes the request for a retry. TensorFlow draws the ids from a generator that it seeds with 32 bits
in the new thread of each step. So two of `n` steps within the last 100,000 have the same id with
a probability of about `n * n / 2 / 2**32`, and the second one is refused although it is new.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

# At the beginning of a line: TensorFlow also quotes earlier warnings, with a prefix. Only a refused
# RunGraph means that a task's whole part of the step did not run. After a refused RecvTensor a part
# may be half done, and a refused RunStep was perhaps done before.
_REFUSED: Final = re.compile(
    r"^(?:[A-Z_]+: )?The same RunGraph \(Worker\) request was received twice", re.MULTILINE
)
_RETRIES: Final = "GRPC_MAX_RETRIES"


def is_false_refusal(message: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether an error says that a task refused its part of a step, and none of that part ran.

    Args:
        message: The text of an `AbortedError`, or of the `CancelledError` of another task's part.
        environment: The variables; the process's own by default. Where they let TensorFlow send a
            request again (`GRPC_MAX_RETRIES`), the refused one may be a true retry.
    """
    variables = os.environ if environment is None else environment
    return variables.get(_RETRIES, "0") == "0" and _REFUSED.search(message) is not None
