"""The golden files: every description beside what must come of it.

`good/NAME.yaml` stands beside `good/NAME.MODE.compose.yml` and, for the other targets,
`good/NAME.sbatch` and `good/NAME.jobset.yml`, or the errors that refuse the description.
`bad/NAME.yaml` stands beside `bad/NAME.error.txt`. `make golden` writes the expectations anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lab.backends.compose.render import render
from lab.backends.names import KUBERNETES, SLURM
from lab.backends.options import Values
from lab.backends.rendered_file import Rendering, RenderOptions, planned_run
from lab.config import parse_cluster
from lab.config.yaml_reader import read_source
from lab.errors import ConfigError
from lab.placement.place import place
from tests.golden.boxes import MODES, inventory
from tests.support.rendering import render_file

HERE = Path(__file__).parent
GOOD = sorted((HERE / "good").glob("*.yaml"))
BAD = sorted((HERE / "bad").glob("*.yaml"))
FILES: dict[str, dict[str, Values]] = {
    SLURM: {
        "sbatch": {},
        "no-het.sbatch": {"het": False, "time": 5400.0},
        "container.sbatch": {"container": "it's/$(id) `id`.sif"},
    },
    KUBERNETES: {
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


def good_outputs(source: Path) -> Iterator[tuple[Path, str]]:
    """What a description becomes in every mode, and the file that says so."""
    cluster = parse_cluster(source.read_bytes(), source.name)
    for mode in MODES:
        plan = place(cluster, inventory(mode, cluster))
        text = render(plan, rendering=Rendering(source.name, run=planned_run(cluster)))
        yield source.with_name(f"{source.stem}.{mode}.compose.yml"), text
    for target, files in FILES.items():
        try:
            for name, own in files.items():
                options = RenderOptions(own=own)
                text = render_file(source, options, target=target, relative_to=source.parent)
                yield source.with_name(f"{source.stem}.{name}"), text
        except ConfigError as error:
            problems = [line.replace(f"{source.parent}/", "") for line in error.problems]
            text = "".join(f"{line}\n" for line in problems)
            yield source.with_suffix(f".{target}-error.txt"), text


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
