"""Shell completion: the candidates that `lab __complete` prints.

The candidates come from the declarations that parse the command line. A shell inserts them into its
line as they are, so none has a character that is special to a shell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.backends.names import known
from lab.backends.state import state_directory
from lab.base.errors import LabError
from lab.base.log import shown_by
from lab.base.options import Argument, Arguments, Parameter, ProgramArguments, parameters
from lab.base.variables import LAB_RUNS_DIR
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs import COMMANDS, python_name

if TYPE_CHECKING:
    from lab.cluster.config import Cluster

_SAFE: Final = re.compile(r"(?:last~)?[A-Za-z0-9._=-]+")


def candidates(words: Sequence[str]) -> list[str]:
    """Return the candidates for the last of the words after `lab`.

    bash makes three words of `--flag=value`. A candidate has then only what follows the last `=`.
    """
    text = "\0".join(words)
    *before, current = re.sub("\0=(\0|$)", "=", text).split("\0")
    kept = len(current) - len(text.rpartition("\0")[2].removeprefix("="))
    fitting = (word for word in _all(before, current) if word.startswith(current))
    return [word[kept:] for word in fitting if _SAFE.fullmatch(word) and len(word) > kept]


def _all(before: Sequence[str], current: str) -> Iterable[str]:
    """Return all words that may follow other words, also those that do not fit the current one."""
    if before in ([], ["help"]):
        return [*COMMANDS, "help", "--help", "--version"]
    name, *rest = before
    if name not in COMMANDS or "--" in rest:
        return []
    known = parameters(import_module(f"lab.verbs.{python_name(name)}").command)
    flags = _flags(known, rest[0] if rest else None)
    valued = {flag for flag, each in flags.items() if not each.is_switch}
    if rest and rest[-1] in valued:
        return _values(flags[rest[-1]])
    head, equals, _ = current.partition("=")
    if equals and head in flags:
        return [f"{head}={each}" for each in _values(flags[head])]
    if current.startswith("-"):
        return [*flags, "--help"]
    words = pairwise(["", *rest])
    place = sum(not word.startswith("-") and last not in valued for last, word in words)
    positional = [each for each in known if isinstance(each.kind, Argument)]
    positional += [each for each in known if isinstance(each.kind, Arguments)] * (place + 1)
    return [text for each in positional[place : place + 1] for text in _values(each)]


def _flags(known: Iterable[Parameter], program: str | None) -> dict[str, Parameter]:
    """Return the flags of a command, and those of the program that it starts, or of all."""
    flags = {f"--{each.flag.replace('_', '-')}": each for each in known if each.is_flag}
    flags |= {each.short: each for each in known if each.short}
    programs = [each.kind for each in known if isinstance(each.kind, ProgramArguments)]
    with suppress(LabError, OSError), shown_by(lambda _: None):
        flags |= {f"--{flag}": of for kind in programs for flag, of in kind.flags(program).items()}
    return flags


def _values(parameter: Parameter) -> Iterable[str]:
    """Return the values that a parameter takes, which its placeholder names or its parser lists."""
    shows = getattr(parameter.kind, "shows", "") or parameter.flag.upper()
    source = _SOURCES.get(re.split("[^A-Z]", shows)[0])
    return source() if source else getattr(getattr(parameter.kind, "parse", None), "choices", ())


def _experiments() -> list[str]:
    """Return the experiments of lab, of the project here, and of installed packages."""
    from lab.cluster.experiments import outside_experiments  # noqa: PLC0415  (as `_clusters`)
    from lab.cluster.project import default_root  # noqa: PLC0415

    outside: Iterable[str] = ()
    with suppress(LabError, OSError), shown_by(lambda _: None):
        outside = outside_experiments(default_root())
    return [*EXPERIMENTS, *outside]


def _own_options() -> list[str]:
    """Return the options that only one backend has, each with its values."""
    options = (option for backend in known().values() for option in backend.options)
    return [text for option in options for text in option.completions]


def _runs() -> list[str]:
    """Return the collected runs, the newest first: their names begin with their start time."""
    store = Path(os.environ.get(LAB_RUNS_DIR) or "runs")
    names = sorted((path.parent.name for path in store.glob("*/run.json")), reverse=True)
    return [*("last", "last~1")[: len(names)], *names]


def _tasks() -> list[str]:
    """Return the tasks of the config in this directory."""
    jobs = [job for cluster in _clusters("cluster.yaml") for job in cluster.jobs.items()]
    return [f"{name}-{index}" for name, job in jobs for index in range(len(job.on))]


def _environments() -> list[str]:
    """Return the environments with a record on this host, and those of the configs here."""
    recorded = {path.parent.name for path in state_directory().glob("*/*/environment.json")}
    return sorted(
        recorded | {cluster.name for cluster in _clusters("cluster.yaml", "clusters/*.yaml")}
    )


def _clusters(*patterns: str) -> Iterator[Cluster]:
    """Yield the valid configs of this directory."""
    from lab.cluster.config import load_cluster  # noqa: PLC0415  (most calls do not need it)

    for path in (path for pattern in patterns for path in Path().glob(pattern)):
        with suppress(LabError, OSError):
            yield load_cluster(path)


_SOURCES: Final[Mapping[str, Callable[[], Iterable[str]]]] = {
    "EXPERIMENT": _experiments,
    "KEY": _own_options,
    "RUN": _runs,
    "TASK": _tasks,
    "TARGET": _tasks,
    "ENVIRONMENT": _environments,
}
"""What a placeholder in the help stands for, to the names that a user can type there now."""
