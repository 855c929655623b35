"""The picture of a cluster: of a run and of a plan, its labels, and `lab render --picture`."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle
from matplotlib.transforms import Bbox

from lab.config import load_cluster, parse_cluster
from lab.gpu import take_inventory
from lab.placement.place import place
from lab.placement.plan import Plan
from lab.plots import cluster, style
from lab.plots.cluster import draw_shape
from lab.plots.layout import MOST_TASKS
from lab.plots.shape import ClusterShape, TaskShape, of_plan, of_run
from lab.run.prepare import Submission, prepare
from lab.task.protocol import RunSpec
from lab.task.protocol.experiments import EXPERIMENTS
from tests.support.cli import lab, refused

ROOT = Path(__file__).parents[2]
HOSTILE = "<b>$x^$</b> \\frac{ -->\x1b]0;t\x07"


def planned(name: str) -> Plan:
    config = load_cluster(ROOT / name)
    return place(config, take_inventory("index", config))


def described(nodes: str, jobs: str) -> ClusterShape:
    text = f"version: 1\nname: x\nnodes: {{{nodes}}}\njobs: {{{jobs}}}\n"
    config = parse_cluster(text.encode(), "x.yaml")
    return of_plan(place(config, take_inventory("index", config)), None)


def seventeen() -> ClusterShape:
    names = [f"tf{number}" for number in range(2, 10)]
    nodes = ", ".join(["tf1: {}", *(f"{name}: {{gpus: 1}}" for name in names)])
    return described(nodes, f"ps: {{on: [tf1]}}, worker: {{on: [{', '.join(2 * names)}],"
                     " share: true, gpu_memory_fraction: 0.4}")  # fmt: skip


M, W = "m" * 31, "w" * 31
SHAPES = {
    "1": described("a: {}", "worker: {on: [a]}"),
    "3": described("a: {gpus: 3}, b: {}", "ps: {on: [b], gpus: 0}, worker: {on: [b, a]}"),
    "8": described("a: {gpus: 4}, b: {gpus: 4}", "worker: {on: [a, a, a, a, b, b, b, b], gpus: 1}"),
    "8 GPUs": described("a: {gpus: 8}", "ps: {on: [a], gpus: 0}, worker: {on: [a], gpus: 8}"),
    "8 unused": described("a: {gpus: 8}", "ps: {on: [a], gpus: 0}"),
    "17": seventeen(),
    "17 on a node": described("a: {}", f"ps: {{on: [a]}}, worker: {{on: [a{', a' * 15}]}}"),
    "a long node": described(f"{W}: {{}}", f"worker: {{on: [{W}]}}"),
    "long": described(f"{M}: {{gpus: 2}}, {W}: {{}}", f"ps: {{on: [{W}]}}, {M}: {{on: [{M}]}}"),
}  # fmt: skip


def labels(figure: Figure) -> dict[str, list[Bbox]]:
    """Each text of the picture with its positions."""
    figure.canvas.draw()
    found: dict[str, list[Bbox]] = {}
    for text in figure.axes[0].texts:
        found.setdefault(text.get_text(), []).append(text.get_window_extent())
    return found


@pytest.mark.parametrize("name", ["cluster.yaml", "clusters/book.yaml", "clusters/client.yaml"])
def test_a_run_and_its_plan_are_drawn_alike(name: str, tmp_path: Path) -> None:
    plan = planned(name)
    experiment = EXPERIMENTS["linear" if "client" in name else "async"]
    run = prepare(
        Submission(RunSpec(experiment.name).completed(experiment), plan, tmp_path, None), tmp_path
    )
    assert of_run(run.read()) == of_plan(plan, experiment)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_no_label_overlaps_another_or_is_cut(shape: ClusterShape) -> None:
    figure = draw_shape(shape)
    found = labels(figure)
    for task in shape.tasks:
        assert {task.name, task.device_name, task.address} <= found.keys()
    gpus = [label for label in found if "#" in label]
    assert len({label.partition("#")[2] for label in gpus}) == len(shape.numbers)
    places = [box for boxes in found.values() for box in boxes]
    assert not any(one.overlaps(two) for one, two in itertools.combinations(places, 2))
    patches = [each for each in figure.axes[0].patches if not isinstance(each, FancyArrowPatch)]
    boxes = [each.get_window_extent() for each in patches if isinstance(each, Rectangle)]
    assert not any(one.overlaps(two) for one, two in itertools.combinations(boxes, 2))
    frames = [each.get_window_extent() for each in patches]
    for label in places:
        around = [frame for frame in frames if frame.overlaps(label)]
        assert around
        assert all(_holds(frame, label) for frame in around)


def _holds(box: Bbox, label: Bbox) -> bool:
    return box.x0 <= label.x0 and label.x1 <= box.x1 and box.y0 <= label.y0 and label.y1 <= box.y1


def test_names_are_drawn_as_text() -> None:
    task = TaskShape(HOSTILE, 0, HOSTILE, HOSTILE, (HOSTILE,), serves=False)
    shape = ClusterShape(HOSTILE, HOSTILE, "", {HOSTILE: (HOSTILE,)}, (task,))
    figure = draw_shape(shape)
    drawing = style.svg(figure)
    ElementTree.fromstring(drawing)  # noqa: S314  (our own)
    assert b"\x1b" not in drawing
    assert b"<b>" not in drawing
    assert any("<b>$x^$</b> \\frac{ -->\\x1b]0;t\\x07" in label for label in labels(figure))


def test_of_many_tasks_and_gpus_some_are_drawn() -> None:
    gpus = tuple(f"GPU-{number}" for number in range(100))
    shape = SHAPES["1"]
    tasks = tuple(
        replace(shape.tasks[0], index=index, gpus=() if index else gpus) for index in range(1000)
    )
    many = replace(shape, tasks=tasks)
    found = labels(draw_shape(many))
    assert sum(label.startswith("/job:") for label in found) == MOST_TASKS
    assert any(label.endswith(f"{MOST_TASKS} of 1,000 tasks are drawn") for label in found)
    assert "84\nmore" in found
    links = cluster._topology(replace(many, experiment="hello")).links
    assert len(links) == MOST_TASKS * (MOST_TASKS - 1) / 2


def test_render_draws_the_picture_beside_the_compose_file(project: Path) -> None:
    arguments = ("render", "--gpus", "none", "--picture")
    assert lab(project, *arguments, "a.svg").returncode == 0
    assert (project / "compose.yaml").is_file()
    first = (project / "a.svg").read_bytes()
    for name in ("a.svg", "b.svg"):  # the first is its own and may be replaced
        done = lab(project, *arguments, name, "--output", "-")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"wrote {name}")
        assert (project / name).read_bytes() == first
    root = ElementTree.fromstring(first)  # noqa: S314  (our own)
    assert root.tag.endswith("}svg")
    assert b"/job:worker/task:0" in first  # matplotlib comments each text
    assert b"dc:date" not in first


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--picture", "notes.svg"], "notes.svg exists, and lab did not write it"),
        (["--picture", "."], "--picture: . is a directory"),
        (["--picture", "no/a.svg"], "--picture: there is no directory no"),
        (["--picture", "a", "--output", "./a"], "--picture and --output name the same file"),
        (
            ["--picture", "a.svg", "--check"],
            "--check only compares, so that --picture has no effect",
        ),
    ],
)
def test_a_picture_that_cannot_be_written(
    arguments: list[str],
    fault: str,
    project: Path,
) -> None:
    (project / "notes.svg").write_text("<svg/>")
    before = sorted(project.iterdir())
    assert fault in refused(lab(project, "render", "--gpus", "none", *arguments))
    assert sorted(project.iterdir()) == before
    assert (project / "notes.svg").read_text() == "<svg/>"


def test_a_picture_on_a_full_disk_is_one_line(project: Path) -> None:
    done = lab(project, "render", "--gpus", "none", "--picture", "/dev/full")
    assert done.returncode == 1
    assert done.stderr == (
        "error: /dev/full cannot be written (No space left on device); name another file with"
        " `--picture`\n"
    )
    assert not (project / "compose.yaml").exists()
