"""docs/errors.md: written from the places and their examples, and read back to be checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tools.errors.scan import REASON, ROOT, Place, holes_as, pattern

PATH: Final = ROOT / "docs" / "errors.md"

_PREAMBLE: Final = """\
# Errors

This page lists the errors of `lab` and of the training programs. Each has an example and a fix. Search the page for a part of your
message. In headings, `…` replaces names and numbers.

An error is one line on stderr: `error: what is wrong; how to fix it`. Each fault of a config has its own line, with its place in the file. The exit
code shows the kind of error:

| exit code | means |
| --- | --- |
| 0 | success |
| 1 | failure: of the host, the engine, the disk or the training |
| 2 | wrong usage or input: nothing was started |
| 130 | interrupted with Ctrl-C |

`--debug` shows the traceback of an error; every command has this flag. An error that begins with `internal:` is a defect of `lab`. Please report
it with its traceback.

`make errors` writes this page, from the code and from the unit tests.
"""

# ruff: noqa: E501

_GROUPS: Final = (
    (
        "Typing a command",
        "`lab` checks the arguments of a command before it executes anything.",
        (
            "lab/cli/",
            "lab/config/start_schedule.py",
        ),
    ),
    (
        "Writing a config",
        "`lab validate` shows all faults of a config at once, in the order of the file. After the semicolon is what "
        "you can write instead.",
        ("lab/config/", "lab/placement/config_generator.py", "lab/cli/commands/init.py"),
    ),
    (
        "Placing it on this host",
        "The config is correct, but it does not fit this host or this directory.",
        (
            "lab/placement/place.py",
            "lab/placement/plan.py",
            "lab/gpu.py",
            "lab/placement/cpuset.py",
            "lab/render/",
        ),
    ),
    (
        "Choosing a backend and an environment",
        "Which environments are up on this host, and which backends work here.",
        ("lab/backends/",),
    ),
    (
        "Containers",
        "Errors of Docker. The text before the colon names the failed step.",
        ("lab/backends/compose/", "lab/build.py"),
    ),
    (
        "Processes",
        "The backend `local`: the tasks are processes of this host, without containers.",
        ("lab/backends/local/",),
    ),
    (
        "Starting a run",
        "`lab` checks the program, the data and the jobs before it starts anything.",
        (
            "lab/run/project.py",
            "lab/run/program.py",
            "lab/run/python_source.py",
            "lab/run/prepare.py",
            "lab/service/planning.py",
            "lab/service/run.py",
            "lab/cli/commands/run.py",
        ),
    ),
    (
        "Following and collecting runs",
        "What was collected, what was not, and why.",
        (
            "lab/run/",
            "lab/cli/commands/attach.py",
            "lab/cli/commands/cancel.py",
            "lab/service/archive.py",
            "lab/service/environments.py",
            "lab/service/outcome.py",
        ),
    ),
    (
        "Sweeping",
        "`lab sweep` checks the grid before it starts anything. Its runs are ordinary runs.",
        (
            "lab/sweep/",
            "lab/service/sweep.py",
            "lab/service/batches.py",
            "lab/cli/commands/sweep.py",
        ),
    ),
    (
        "Reproducing",
        "`lab reproduce` makes ordinary runs and compares their results with the source.",
        (
            "lab/reproduce/",
            "lab/service/reproduce.py",
            "lab/service/evaluation.py",
            "lab/cli/commands/reproduce.py",
        ),
    ),
    (
        "Predicting",
        "`lab predict`: the saved model of a run, and an image for it.",
        ("lab/predict/", "lab/service/predict.py", "lab/cli/commands/predict.py"),
    ),
    (
        "Reporting",
        "`lab report`: its output files and its other inputs.",
        ("lab/report/", "lab/plots/", "lab/service/report.py", "lab/cli/commands/report.py"),
    ),
    (
        "Comparing runs",
        "`lab compare` and `lab tensorboard` use collected runs.",
        (
            "lab/compare/",
            "lab/tensorboard/",
            "lab/service/compare.py",
            "lab/cli/commands/compare.py",
            "lab/cli/commands/tensorboard.py",
        ),
    ),
    (
        "From Python",
        "`lab.api`: errors that only Python code can cause.",
        ("lab/api/",),
    ),
    (
        "Inside a task",
        "Errors of a training program or a task agent. They are in the task's log (`lab logs`), or on the terminal if "
        "you started the program by hand.",
        ("lab/task/",),
    ),
)

_REASONS: Final = (
    "Why a task or a run ended",
    "`lab ps`, `lab runs` and `lab show` print these reasons beside a state.",
)

_WHEN: Final = {
    "lab/cli/__init__.py": "the arguments of a command are checked; nothing was executed",
    "lab/cli/arguments.py": "the arguments of a command are checked; nothing was executed",
    "lab/cli/param_types.py": "the arguments of a command are checked; nothing was executed",
    "lab/cli/errors.py": "a command stops for an unexpected reason",
    "lab/service/outcome.py": "`lab run` or `lab attach` has followed a run to its end",
    "lab/config/start_schedule.py": "a run's start times are checked; nothing was started",
    "lab/config/": "a config is read, by `lab validate` and by each command that uses one",
    "lab/placement/config_generator.py": "`lab init` writes a config",
    "lab/backends/compose/error_hints.py": "the engine or compose reports an error",
    "lab/task/sdk/flags.py": "a training program reads its flags; an experiment's are checked before",
    "lab/task/sdk/data.py": "a training program, or `lab predict`, reads its data",
    "lab/task/agent/oneshot.py": "an environment starts with LAB_EXPERIMENT set",
    "lab/task/agent/agent_config.py": "a task agent starts in a container with incomplete variables",
    "lab/task/probes/netem.py": "a node gets the link that the config describes",
}
"""When errors occur, where the docstring of the function does not explain it."""

_WORDS: Final = re.compile(r"[A-Za-z]{2}")


@dataclass(frozen=True, order=True)
class Entry:
    """What one heading of the page stands for.

    Attributes:
        title: The message, with `…` for what is filled in.
        fix: How to fix it.
        code: The exit code as text.
        where: `lab/gpu.py: take_inventory`, or the file alone; sorted.
    """

    title: str
    fix: str
    code: str
    where: tuple[str, ...]


def entries(places: Iterable[Place]) -> dict[Entry, list[Place]]:
    """The page's entries, by the place that each is made from; equal messages are one."""
    alike: dict[tuple[str, str, str, str], list[Place]] = {}
    for place in places:
        key = (_group(place), *_said(place))
        alike.setdefault(key, []).append(place)
    return {
        Entry(title, fix, code, tuple(sorted({_where(each) for each in same}))): same
        for (_, title, fix, code), same in alike.items()
    }


def write(places: Iterable[Place], examples: Mapping[Place, str]) -> str:
    """The page."""
    grouped: dict[str, list[tuple[Entry, list[Place]]]] = {}
    for entry, same in sorted(entries(places).items(), key=lambda pair: _order(pair[0])):
        grouped.setdefault(_group(same[0]), []).append((entry, same))
    titles = [(title, words) for title, words, _ in _GROUPS] + [_REASONS]
    parts = [_PREAMBLE]
    parts.append(
        "\n".join(f"- [{title}](#{_anchor(title)})" for title, _ in titles if title in grouped)
    )
    for title, words in titles:
        if title in grouped:
            parts.append(f"\n## {title}\n\n{words}")
            parts += [_shown(entry, same, examples) for entry, same in grouped[title]]
    return "\n".join(parts) + "\n"


_ENTRY: Final = re.compile(
    r"^### (?P<title>.+)\n\n```text\n(?P<example>(?:.*\n)+?)```\n\n"
    r"(?:Fix: (?P<fix>.+)\n\n)?"
    r"(?P<when>.+)\n\n<sub>(?P<code>[^·\n]*) · (?P<where>.+)</sub>$",
    re.MULTILINE,
)


def read(page: str) -> dict[Entry, str]:
    """The entries of a page, and their examples."""
    return {
        Entry(
            _plain(found["title"]),
            _plain(found["fix"] or ""),
            found["code"],
            tuple(found["where"].replace("`", "").split(", ")),
        ): found["example"].removesuffix("\n")
        for found in _ENTRY.finditer(page)
    }


def fits(example: str, same: Iterable[Place]) -> bool:
    """Whether one of these places could have said so."""
    return any(pattern(f"⟨⟩{each.what}⟨⟩").fullmatch(example) for each in same)


def _shown(entry: Entry, same: list[Place], examples: Mapping[Place, str]) -> str:
    known = [examples[each] for each in same if each in examples]
    example = (
        min(known, key=lambda text: (len(text), text)) if known else "(no test brings it about)"
    )
    when = "; ".join(dict.fromkeys(_when(each) for each in sorted(same)))
    where = ", ".join(f"`{each}`" for each in entry.where)
    fix = f"Fix: {_escaped(entry.fix)}\n\n" if entry.fix else ""
    return (
        f"\n### {_escaped(entry.title)}\n\n```text\n{example}\n```\n\n{fix}"
        f"{_escaped(when[:1].upper() + when[1:])}.\n\n<sub>{entry.code} · {where}</sub>"
    )


def _said(place: Place) -> tuple[str, str, str]:
    code = "a reason, no exit code" if place.exit_code is None else f"exit code {place.exit_code}"
    what, fix = place.what, place.fix
    if not fix and "; " in what and place.kind not in {"LabError"}:
        what, _, fix = what.partition("; ")
    title = holes_as(what, "…").removeprefix("error: ")
    if not _WORDS.search(title):
        title = f"{title} (the message of what failed, in {place.module.removesuffix('.py')})"
    return title, holes_as(fix, "…"), code


def _when(place: Place) -> str:
    head = "lab/cli/commands/"
    if place.module.startswith(head):
        return f"`lab {place.module.removeprefix(head).removesuffix('.py')}` was called"
    for prefix, words in _WHEN.items():
        if place.module.startswith(prefix) and place.kind != REASON:
            return words
    return f"while: {place.about[:1].lower()}{place.about[1:]}"


def _where(place: Place) -> str:
    return f"{place.module}: {place.function}" if place.function else place.module


def _group(place: Place) -> str:
    if place.kind == REASON:
        return _REASONS[0]
    fitting = [
        (len(prefix), title)
        for title, _, prefixes in _GROUPS
        for prefix in prefixes
        if place.module.startswith(prefix)
    ]
    return max(fitting)[1] if fitting else _GROUPS[0][0]


def _order(entry: Entry) -> tuple[str, Entry]:
    return re.sub(r"[^a-z ]", "", entry.title.lower()).strip(), entry


def _escaped(text: str) -> str:
    """Markdown's own signs lose their meaning, but in code between backticks."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return text.replace("`", "\\`")
    return "`".join(
        part if index % 2 else re.sub(r"([*_<>\[\]#|])", r"\\\1", part)
        for index, part in enumerate(parts)
    )


def _plain(text: str) -> str:
    return re.sub(r"\\([*_<>\[\]#|`])", r"\1", text)


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")
