"""`lab class ACTION`.

validate    check class.yaml, the files that it names, and this host; list all problems
up          boot the class: JupyterHub, a proxy and a container for each seat
status      list the seats, with the newest run of each, and the queue
board       show the same on a live web page for a projector until Ctrl-C
time        print the time left, or set the board's countdown: 45m, +15m or off
handouts    write a printable page with the address and password of each seat
reset SEAT  reset a seat; a copy of the student's work is kept
down        collect the work of all seats into one archive, then remove the class
gradebook ARCHIVE
            compute from that archive which lesson stages each seat has passed

Examples:
    # check ./class.yaml and this host, and show what each seat gets
    lab class validate
    # for another host with 8 GPUs, as JSON
    lab class validate --gpus 8 --json
    # boot the class
    lab class up
    # show seats, stages, queue and time left on a projector
    lab class board
    # print the time left
    lab class time
    # count down 45 minutes on the board
    lab class time 45m
    # add 15 minutes, even after the end
    lab class time +15m
    # remove the end
    lab class time off
    # print the passwords
    lab class handouts
    # reset a seat for another student
    lab class reset seat-07
    # collect all work, and remove the class
    lab class down --output work.zip
    # afterwards, list what each seat has passed
    lab class gradebook work.zip
    # write each stage with its runs and answers as CSV, for a spreadsheet
    lab class gradebook work.zip --output stages.csv
    # write the points for each lesson as CSV that Canvas can import
    lab class gradebook work.zip --for canvas --output grades.csv
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Final

from lab.backends.names import AUTO
from lab.base.converters import one_of, text, whole
from lab.base.errors import InputError
from lab.base.options import Argument, Flag, Switch, given_flags, verb
from lab.verbs.common_options import HostGpus
from lab.verbs.printing import Called, Shown, print_checked, prints

DEFAULT_CLASS: Final = "class.yaml"

ACTIONS: Final = (
    "validate", "up", "status", "board", "time", "handouts", "reset", "down", "gradebook",
)  # fmt: skip
"""Each is a function of `lab.verbs.class_actions`; its keywords are the options that it takes."""


@verb
def class_(
    action: Annotated[str, Argument("what to do, as listed below", one_of(*ACTIONS))],
    of: Annotated[
        str, Argument("the seat, the archive, or the time", text, "SEAT|ARCHIVE|TIME")
    ] = "",
    *,
    file: Annotated[str, Flag("the class config", text, shows="FILE")] = DEFAULT_CLASS,
    gpus: HostGpus = AUTO,
    output: Annotated[
        str | None,
        Flag(
            "the archive, page or table to write (default: in this directory)", text, shows="FILE"
        ),
    ] = None,
    for_: Annotated[
        str | None,
        Flag(
            "write the gradebook as CSV that canvas or moodle can import",
            one_of("canvas", "moodle"),
            shows="PLATFORM",
        ),
    ] = None,
    port: Annotated[
        int | None, Flag("the port of the board on 127.0.0.1", whole(1, 65535), shows="PORT")
    ] = None,
    yes: Annotated[bool, Switch("do not ask for confirmation", short="-y")] = False,
) -> Shown | None:
    """Run a class of several seats on this host.

    Returns:
        The result of the action: of `status` the seats, of `handouts` the page. `board` has none:
        it serves until Ctrl-C.

    Raises:
        ConfigError: The class config has errors; `problems` has all of them.
        InputError: The action does not take an argument, or no class is up.
        LabError: The host cannot run the class, or a part of it does not answer.
    """
    given = dict(locals())
    from lab.verbs import class_actions  # noqa: PLC0415  (takes 0.5 s)

    act = getattr(class_actions, action)
    takes = inspect.signature(act).parameters
    others = given_flags(class_, given, *(given.keys() - takes.keys() - {"action", "file", "of"}))
    for flag in [*(["SEAT"] if of and "of" not in takes else []), *others]:
        raise InputError(f"`lab class {action}` does not take {flag}", f"leave out {flag}")
    options = {name: value for name, value in given.items() if name in takes.keys() - {"file"}}
    result: Shown | None = act(Path(file), **options)
    return result


def _present(called: Called, *, json: bool) -> None:
    file = called.keywords.get("file", DEFAULT_CLASS)
    print_checked(called, lambda: file, json=json)


command = prints(class_, _present)
