"""Start a user's own program as Python itself does, with what it needs to run unchanged.

    python -m lab.task.own [--quiet] PROGRAM [ARGUMENTS]
    python -m lab.task.own [--quiet] -m MODULE [ARGUMENTS]

It completes the flags of the cluster that the program declares, and adds the shipped images for
`keras.datasets.mnist` and `torchvision.datasets.MNIST`, and TensorFlow request ids that do not
repeat if the program belongs to a cluster. It imports neither TensorFlow nor PyTorch.

`--quiet` leaves out the warning that the program cannot know its place in the cluster.
"""

from __future__ import annotations

import functools
import os
import re
import sys

from lab.task import request_ids
from lab.task.after_import import after_import
from lab.task.flag_completion import QUIET, RANK_PLACEHOLDERS, complete_flags
from lab.task.own import mnist
from lab.task.own.main_module import exit_with_traceback, run_file, run_module
from lab.task.sdk.gloo_threads import finish_at_exit


def main() -> None:
    """Run the program; end with its exit code."""
    is_quiet = sys.argv[1] == QUIET
    first, *arguments = sys.argv[1 + is_quiet :]
    if "TORCHELASTIC_USE_AGENT_STORE" in os.environ:
        _fill_in_rank(arguments)
    complete_flags(os.environ, is_quiet=is_quiet)
    mnist.provide()
    # Read now: a program may change the variables.
    if (place := request_ids.place_of(os.environ)) is not None:
        notify = functools.partial(print, file=sys.stderr, flush=True)
        after_import({"tensorflow"}, lambda _: request_ids.number_requests(place, notify))
    after_import({"torch.distributed"}, lambda _: finish_at_exit())
    for name in [module for module in sys.modules if module.partition(".")[0] == "lab"]:
        # A module of the program may have the name `lab`.
        del sys.modules[name]
    try:
        if first == "-m":
            run_module(arguments[0], arguments[1:])
        else:
            run_file(first, arguments)
    except Exception as error:  # noqa: BLE001  (Python would report any of them)
        exit_with_traceback(error)


def _fill_in_rank(arguments: list[str]) -> None:
    """Fill in the placeholders of a rank: torchrun, not the agent, has started this process."""
    ranks = {name: os.environ[variable] for name, variable in RANK_PLACEHOLDERS.items()}

    def filled_in(template: str) -> str:
        return re.sub("|".join(ranks), lambda match: ranks[match[0]], template)

    arguments[:] = map(filled_in, arguments)
    os.environ.update({name: filled_in(text) for name, text in os.environ.items()})


main()
