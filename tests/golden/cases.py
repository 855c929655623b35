"""The golden files: every description beside what must come of it.

`good/NAME.yaml` stands beside `good/NAME.index.compose.yml` and `good/NAME.sbatch`. What another
mode changes is a diff of some of them: `good/NAME.none.compose.yml.diff`. Of each flavour for
Kubernetes there is one file, `good/default.plain.yml` and `good/run.jobset.yml`;
`tests/unit/backends/test_kubernetes_render.py` compares all descriptions with the default one. If a
target refuses a description, its errors are there instead. `bad/NAME.yaml` stands beside
`bad/NAME.error.txt`. `make golden` writes the expectations anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path

from lab.backends import kubernetes, slurm
from lab.backends.compose.render import render
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering, RenderOptions, planned_run
from lab.base.errors import ConfigError
from lab.cluster.config import parse_cluster
from lab.cluster.config.yaml_reader import read_source
from lab.cluster.placement.place import place
from tests.golden.boxes import MODES, inventory
from tests.support.rendering import render_file

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").glob("*.yaml"))
BAD = sorted((HERE / "bad").glob("*.yaml"))
FILES: dict[str, dict[str, Values]] = {
    slurm.NAME: {"sbatch": {}},
    kubernetes.NAME: {
        "jobset.yml": {"queue": "on", "nodes": "one"},
        "plain.yml": {
            "flavour": "plain",
            "namespace": "course",
            "claim": "shared",
            "image": "registry.example:5000/lab:cpu",
        },
    },
}
"""What is rendered for each target, each with its own options."""

DIFFERING = ("default", "exclusive-beside-shared")
"""The descriptions of which other modes are shown, too."""

ON_KUBERNETES = {"default": "plain.yml", "run": "jobset.yml"}
"""The descriptions that have a file for Kubernetes, and which one."""

_SECTION = re.compile(r"(?:  )?[^\s#]+:(?: &\S+)?\n")
"""The line of a service, or of another part of a compose file."""


def good_outputs(source: Path) -> Iterator[tuple[Path, str]]:
    """What a description becomes for every target, and the files that say so."""
    cluster = parse_cluster(source.read_bytes(), source.name)
    rendering = Rendering(source.name, run=planned_run(cluster))
    modes = {
        f"{mode}.compose.yml": render(place(cluster, inventory(mode, cluster)), rendering=rendering)
        for mode in MODES
    }
    yield from _with_differences(source, modes)
    for target in FILES:
        try:
            texts = rendered_files(source, target)
        except ConfigError as error:
            problems = [line.replace(f"{source.parent}/", "") for line in error.problems]
            text = "".join(f"{line}\n" for line in problems)
            yield _refusal(source, target), text
        else:
            name = "sbatch" if target == slurm.NAME else ON_KUBERNETES.get(source.stem)
            if name is not None:
                yield source.with_name(f"{source.stem}.{name}"), texts[name]


def rendered_files(source: Path, target: str) -> dict[str, str]:
    """What a description becomes for a target, with each of the options in `FILES`."""
    return {
        name: render_file(source, RenderOptions(own=own), target=target, relative_to=source.parent)
        for name, own in FILES[target].items()
    }


def accepted(target: str) -> list[Path]:
    return [source for source in GOOD if not _refusal(source, target).exists()]


def _refusal(source: Path, target: str) -> Path:
    return source.with_suffix(f".{target}-error.txt")


def _with_differences(source: Path, texts: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """The first text, and how each of the others differs from it if that is shown."""
    (base, first), *others = ((f"{source.stem}.{name}", text) for name, text in texts.items())
    yield source.with_name(base), first
    for name, text in others if source.stem in DIFFERING else ():
        head = f"--- {base}\n+++ {name}\n"
        yield source.with_name(f"{name}.diff"), head + "".join(_hunks(first, text))


def _hunks(first: str, second: str) -> Iterator[str]:
    """The hunks of a unified diff without context, each with the section in which it begins."""
    old, new = first.splitlines(keepends=True), second.splitlines(keepends=True)
    # Without `autojunk`, the lines that many services have match too, and hunks are smaller.
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for kind, begin, end, new_begin, new_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        sections = [line.strip() for line in old[:begin] if _SECTION.fullmatch(line)]
        ranges = f"-{_range(begin, end)} +{_range(new_begin, new_end)}"
        yield " ".join(["@@", ranges, "@@", *sections[-1:]]) + "\n"
        yield from (f"-{line}" for line in old[begin:end])
        yield from (f"+{line}" for line in new[new_begin:new_end])


def _range(begin: int, end: int) -> str:
    """The first line and the number of lines, or the line before and 0, as in unified diffs."""
    return f"{begin + 1 if end > begin else begin},{end - begin}"


def bad_output(source: Path) -> tuple[Path, str]:
    """The error text of a description, and the file that says so."""
    try:
        parse_cluster(source.read_bytes(), source.name)
    except ConfigError as error:
        return source.with_suffix(".error.txt"), "".join(f"{line}\n" for line in error.problems)
    raise AssertionError(f"{source.name} has no fault")


def core(text: str) -> object:
    """Plain values, as an editor that follows YAML 1.2 reads them."""
    return read_source(text.encode()).value
