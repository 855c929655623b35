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

What `lab` and the training programs say when something cannot be done, each with an example and the way to mend it.
Search this page for the words of your message: headings show them, with `…` for what is filled in.

An error is one line on stderr, `error: what is wrong; how to mend it`; a description's faults are one line each, with
the place in the file. The exit code says what kind it is:

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | it failed: the box, the engine, the disk, or the training said no |
| 2 | wrong usage or input: nothing was started |
| 130 | interrupted with Ctrl-C |

`--debug`, which every command takes, shows the traceback of whatever was raised. An error that begins with `internal:`
is a defect of `lab`: please report it with that traceback.

This page is generated: `make errors` writes it from the code and from what the tests brought about.
"""

# ruff: noqa: E501

_GROUPS: Final = (
    (
        "Typing a command",
        "The words of a command are checked before anything is executed.",
        (
            "lab/cli/",
            "lab/config/start_schedule.py",
        ),
    ),
    (
        "Writing a description",
        "All faults of a description are shown at once, in the order of the file; `lab validate` looks for nothing "
        "else. What is wrong comes first, and after a semicolon what to write instead.",
        ("lab/config/", "lab/placement/config_generator.py", "lab/cli/commands/init.py"),
    ),
    (
        "Placing it on this box",
        "The description is sound, and the box or the folder does not fit it.",
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
        "What is up on this box, and what can be booted here.",
        ("lab/backends/",),
    ),
    (
        "Containers",
        "What Docker refuses; the words before the colon say what was being done.",
        ("lab/backends/compose/", "lab/build.py"),
    ),
    (
        "Processes",
        "The backend `local`: no containers, the tasks are processes of this box.",
        ("lab/backends/local/",),
    ),
    (
        "Starting a run",
        "Before anything is started, the program, the data and the jobs are checked.",
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
        "What has come home, what has not, and what stands in the way.",
        (
            "lab/run/",
            "lab/cli/commands/attach.py",
            "lab/cli/commands/cancel.py",
            "lab/service/environments.py",
            "lab/service/outcome.py",
        ),
    ),
    (
        "Sweeping",
        "`lab sweep`: what is varied is checked before anything starts; the runs are ordinary ones.",
        (
            "lab/sweep/",
            "lab/service/sweep.py",
            "lab/service/batches.py",
            "lab/cli/commands/sweep.py",
        ),
    ),
    (
        "Reproducing",
        "`lab reproduce`: the runs are ordinary ones; what they come to is held against the source.",
        (
            "lab/reproduce/",
            "lab/service/reproduce.py",
            "lab/service/evaluation.py",
            "lab/cli/commands/reproduce.py",
        ),
    ),
    (
        "Predicting",
        "`lab predict`: the saved model of a run, and a picture for it.",
        ("lab/predict/", "lab/service/predict.py", "lab/cli/commands/predict.py"),
    ),
    (
        "Reporting",
        "`lab report`: where its files go, and what it is given beside runs.",
        ("lab/report/", "lab/plots/", "lab/cli/commands/report.py"),
    ),
    (
        "Comparing runs",
        "`lab compare` and `lab tensorboard`: runs that are at home.",
        (
            "lab/compare/",
            "lab/tensorboard/",
            "lab/cli/commands/compare.py",
            "lab/cli/commands/tensorboard.py",
        ),
    ),
    (
        "From Python",
        "`lab.api`: what a notebook is told beside what the commands say.",
        ("lab/api/",),
    ),
    (
        "Inside a task",
        "What a training program or a task agent says; it stands in the task's log (`lab logs`), or on the terminal "
        "where the program was started by hand.",
        ("lab/task/",),
    ),
)

_REASONS: Final = (
    "Why a task or a run ended",
    "No errors of a command but the reasons beside a state, in `lab ps`, `lab runs` and `lab show`.",
)

_WHEN: Final = {
    "lab/cli/__init__.py": "the words of a command are checked; nothing was executed",
    "lab/cli/arguments.py": "the words of a command are checked; nothing was executed",
    "lab/cli/param_types.py": "the words of a command are checked; nothing was executed",
    "lab/cli/errors.py": "something stopped a command that nothing else foresaw",
    "lab/service/outcome.py": "`lab run` or `lab attach` has followed a run to its end",
    "lab/config/start_schedule.py": "a run's start times are checked; nothing was started",
    "lab/config/": "a description is read, by `lab validate` and by every command that takes one",
    "lab/placement/config_generator.py": "`lab init` makes a description for a box",
    "lab/backends/compose/error_hints.py": "the engine or compose refuses; these are its words, explained",
    "lab/task/sdk/flags.py": "a training program reads its flags; an experiment's are checked before",
    "lab/task/sdk/data.py": "a training program, or `lab predict`, reads its data",
    "lab/task/agent/oneshot.py": "an environment is booted with LAB_EXPERIMENT set",
    "lab/task/agent/agent_config.py": "a task agent starts in containers that something else has described",
    "lab/task/probes/netem.py": "a node gets the link that the description asks for",
}
"""When errors come, where the function that makes them says it in words of the code only."""

_WORDS: Final = re.compile(r"[A-Za-z]{2}")


@dataclass(frozen=True, order=True)
class Entry:
    """What one heading of the page stands for.

    Attributes:
        title: The message, with `…` for what is filled in.
        mend: How to mend it.
        code: The exit code in words.
        where: `lab/gpu.py: take_inventory`, or the file alone; sorted.
    """

    title: str
    mend: str
    code: str
    where: tuple[str, ...]


def entries(places: Iterable[Place]) -> dict[Entry, list[Place]]:
    """The page's entries, by the place that each is made from; equal messages are one."""
    alike: dict[tuple[str, str, str, str], list[Place]] = {}
    for place in places:
        key = (_group(place), *_said(place))
        alike.setdefault(key, []).append(place)
    return {
        Entry(title, mend, code, tuple(sorted({_where(each) for each in same}))): same
        for (_, title, mend, code), same in alike.items()
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
    r"(?:Mend: (?P<mend>.+)\n\n)?"
    r"(?P<when>.+)\n\n<sub>(?P<code>[^·\n]*) · (?P<where>.+)</sub>$",
    re.MULTILINE,
)


def read(page: str) -> dict[Entry, str]:
    """The entries of a page, and their examples."""
    return {
        Entry(
            _plain(found["title"]),
            _plain(found["mend"] or ""),
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
    mend = f"Mend: {_escaped(entry.mend)}\n\n" if entry.mend else ""
    return (
        f"\n### {_escaped(entry.title)}\n\n```text\n{example}\n```\n\n{mend}"
        f"{_escaped(when[:1].upper() + when[1:])}.\n\n<sub>{entry.code} · {where}</sub>"
    )


def _said(place: Place) -> tuple[str, str, str]:
    code = "a reason, no exit code" if place.exit_code is None else f"exit code {place.exit_code}"
    what, mend = place.what, place.mend
    if not mend and "; " in what and place.kind not in {"LabError"}:
        what, _, mend = what.partition("; ")
    title = holes_as(what, "…").removeprefix("error: ")
    if not _WORDS.search(title):
        title = f"{title} (the words of what failed, in {place.module.removesuffix('.py')})"
    return title, holes_as(mend, "…"), code


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
