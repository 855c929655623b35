"""Check that TensorFlow works with the GPUs of this host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lab.doctor.model import Outcome, ok, skipped, warning
from lab.gpu import Inventory
from lab.gpu.support import Support, build_of, by_gpus
from lab.tf_versions import CURRENT

_ORDER: Final = (
    Support.TOO_OLD,
    Support.OLD_DRIVER,
    Support.NO_CUDNN,
    Support.UNKNOWN,
)
"""The judgements, the worst first."""


def judge_support(inventory: Inventory, environ: Mapping[str, str]) -> Outcome:
    """Check that the GPUs and the driver are recent enough for TensorFlow.

    Args:
        inventory: This host.
        environ: The environment variables: they may name another TensorFlow.
    """
    build = build_of(CURRENT.tensorflow, environ)
    found = by_gpus(inventory.gpus, inventory, build)
    problems = sorted(
        (each for each in found if each.status is not Support.WORKS),
        key=lambda each: _ORDER.index(each.status),
    )
    if build is None:
        return skipped(problems[0].reason if problems else "no GPU")
    if not problems:
        return ok(f"TensorFlow {build.tensorflow} works with all GPUs")
    # Of several driver versions, the newest is the one that all GPUs need.
    worst = max((e for e in problems if e.status is problems[0].status), key=lambda e: e.fix)
    what = "; ".join(f"{found[each]}: {each.reason}" for each in problems)
    if worst.status is Support.UNKNOWN:
        return skipped(what)
    if any(each.status.usable for each in found):  # one GPU that works is enough
        return warning(what, worst.fix)
    return warning(
        what, worst.fix, "GPU too old" if worst.status is Support.TOO_OLD else str(worst.status)
    )
