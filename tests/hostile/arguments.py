"""Odd command lines: each ends with one line, starts nothing and replaces no other file."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import stat
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final

from lab.base.options import Flag, Parameter, Switch, parameters
from lab.cli.registry import COMMANDS
from lab.verbs import python_name
from tests.hostile.calls import call
from tests.hostile.runs import GOOD, ROOT, SAMPLES
from tests.support.shown import examples

STARTS: Final = frozenset({"run", "up", "sweep", "reproduce", "build"})
"""Commands that could start tasks or a build; they get a state directory that is none."""

SLOW: Final = frozenset({"doctor"})
"""It asks the host, and may take ten seconds."""

LEFT_OUT: Final = frozenset({"--follow", "-f"})
MINE: Final = "a file of the user\n"
ODD: Final = (
    *("", " ", "-", "--", "---", "=", "-1", "0", "1", "2", "1e400", "nan", "inf", "9" * 400, "0x1"),
    *("true", "no", "None", "[]", "{}", "'", '"', "$(id)", "`id`", "%s", "{0}", "*", "~", "\\"),
    *("a b", "a\tb", "a\nb", "\x1b[31m", "\x07", "\u202e", "\udcff", "é", "\U0001f600"),
    *("x" * 5_000,),
    *("x " * 3_000, "../../..", "/", "/dev/null", "/dev/full", "/dev/stdout", ".", "..", "nothing"),
    *("cluster.yaml", "broken.yaml", "notes.txt", "link", "loop", "pipe", "out.yml", "runs"),
    *("last", GOOD, GOOD[:6], "async", "sync", "local", "compose", "worker-0", "tf1", "10s", "1,2"),
)


def prepare(folder: Path) -> None:
    """A project with a config, an invalid one, a run, and files that are not lab's."""
    shutil.copy(ROOT / "cluster.yaml", folder)
    (folder / "broken.yaml").write_text("version: 1\nname: -\n")
    (folder / "notes.txt").write_text(MINE)
    (folder / "link").symlink_to("notes.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "state.file").write_text(MINE)
    os.mkfifo(folder / "pipe")
    (folder / "runs").mkdir()
    shutil.copytree(SAMPLES / GOOD, folder / "runs" / GOOD)
    os.environ["HOME"] = str(folder)
    os.environ["DOCKER_HOST"] = f"unix://{folder}/no.sock"


def attack(seed: int, folder: Path) -> Iterator[str]:
    if not (folder / "loop").is_symlink():
        prepare(folder)
    words = argument_list(seed)
    os.environ["LAB_STATE"] = str(folder / ("state.file" if words[0] in STARTS else "state"))
    output = call(*words)
    yield from output.faults()
    if output.code == 0 and words[0] in STARTS and not {"--help", "-h"}.intersection(words):
        yield output.fault("it has started something")
    for name in ("notes.txt", "state.file"):
        if (folder / name).read_text() != MINE and "--force" not in words:
            yield output.fault(f"{name} was replaced")
        (folder / name).write_text(MINE)
    if not stat.S_ISCHR(Path("/dev/null").stat().st_mode):
        yield output.fault("/dev/null was replaced")


def argument_list(seed: int) -> list[str]:
    """A command and up to six arguments that may or may not be valid."""
    rng = random.Random(seed)  # noqa: S311
    name = rng.choice([each for each in COMMANDS if each not in SLOW])
    if rng.random() < 0.05:
        return [rng.choice(ODD), *rng.choices(ODD, k=rng.randrange(3))]
    known = parameters(import_module(f"lab.verbs.{python_name(name)}").command)
    example = rng.choice(examples(name))
    arguments = shlex.split(example)[2:] if rng.random() < 0.5 else []
    for _ in range(rng.randrange(1, 4)):
        arguments[(place := rng.randrange(len(arguments) + 1)) : place] = _some(known, rng)
    if len(arguments) > 1 and rng.random() < 0.3:
        arguments[rng.randrange(len(arguments))] = rng.choice(ODD)
    arguments = [word for word in arguments if word.partition("=")[0] not in LEFT_OUT]
    return [name, *arguments]


def _some(known: list[Parameter], rng: random.Random) -> list[str]:
    """An argument, a flag with a value, or a switch."""
    flags = [each for each in known if isinstance(each.kind, Flag | Switch)]
    if not flags or rng.random() < 0.4:
        return [rng.choice(ODD)]
    one = rng.choice(flags)
    flag = f"--{one.flag.replace('_', rng.choice('_-'))}"
    if isinstance(one.kind, Switch):
        return [rng.choice((flag, f"{flag}=false", f"{flag}={rng.choice(ODD)}"))]
    value = rng.choice(ODD)
    return rng.choice(([flag, value], [f"{flag}={value}"], [flag]))
