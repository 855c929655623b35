"""The picture of a cluster: of a run and of a plan, its labels, and `lab render --picture`."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.transforms import Bbox

from lab.config import load_cluster, parse_cluster
from lab.experiments.registry import EXPERIMENTS
from lab.gpu import take_inventory
from lab.placement.place import place
from lab.plots import cluster
from lab.plots.cluster import draw_shape
from lab.plots.layout import MOST_TASKS
from lab.plots.shape import ClusterShape, of_plan, of_run, topology_of
from tests.support.cli import lab, project, refused
from tests.support.specs import prepared, run_info

__all__ = ["project"]

ROOT = Path(__file__).parents[2]


def described(nodes: str, jobs: str) -> ClusterShape:
    text = f"version: 1\nname: x\nnodes: {{{nodes}}}\njobs: {{{jobs}}}\n"
    config = parse_cluster(text.encode(), "x.yaml")
    return of_plan(place(config, take_inventory("index", config)), None)


NINE = [f"tf{number}" for number in range(2, 10)]
M, W = "m" * 31, "w" * 31
SHAPES = {
    "1": described("a: {}", "worker: {on: [a]}"),
    "3": described("a: {gpus: 3}, b: {}", "ps: {on: [b], gpus: 0}, worker: {on: [b, a]}"),
    "8": described("a: {gpus: 4}, b: {gpus: 4}", "worker: {on: [a, a, a, a, b, b, b, b], gpus: 1}"),
    "8 GPUs": described("a: {gpus: 8}", "ps: {on: [a], gpus: 0}, worker: {on: [a], gpus: 8}"),
    "8 unused": described("a: {gpus: 8}", "ps: {on: [a], gpus: 0}"),
    "17": described(", ".join(["tf1: {}", *(f"{name}: {{gpus: 1}}" for name in NINE)]),
                    f"ps: {{on: [tf1]}}, worker: {{on: [{', '.join(2 * NINE)}],"
                    " share: true, gpu_memory_fraction: 0.4}"),
    "17 on a node": described("a: {}", f"ps: {{on: [a]}}, worker: {{on: [a{', a' * 15}]}}"),
    "a long node": described(f"{W}: {{}}", f"worker: {{on: [{W}]}}"),
    "long": described(f"{M}: {{gpus: 2}}, {W}: {{}}", f"ps: {{on: [{W}]}}, {M}: {{on: [{M}]}}"),
}  # fmt: skip


def labels(figure: Figure) -> dict[str, list[Bbox]]:
    """Each text of the picture with its positions."""
    figure.draw_without_rendering()
    found: dict[str, list[Bbox]] = {}
    for text in figure.axes[0].texts:
        found.setdefault(text.get_text(), []).append(text.get_window_extent())
    return found


def test_only_tensorflow_has_device_names_of_tasks() -> None:
    for framework in ("tensorflow", "torch", "jax"):
        run = run_info("r", cluster={"worker": ["a:1"]}, framework=framework)
        found = labels(draw_shape(of_run(run)))
        assert "a:1" in found
        named = [text for text in found if "/job:" in text]
        assert named == ["/job:worker/task:0"] * (framework == "tensorflow")


@pytest.mark.parametrize("name", ["cluster.yaml", "clusters/book.yaml", "clusters/client.yaml"])
def test_a_run_and_its_plan_are_drawn_alike(name: str, tmp_path: Path) -> None:
    config = load_cluster(ROOT / name)
    plan = place(config, take_inventory("index", config))
    experiment = EXPERIMENTS["linear" if "client" in name else "async"]
    run = prepared(tmp_path, experiment=experiment.name, plan=plan)
    assert of_run(run.read()) == of_plan(plan, experiment)


@pytest.mark.parametrize(
    ("experiment", "jobs", "links"),
    [
        ("async", "ps worker worker", "ps-0 worker-0, ps-0 worker-1"),
        ("multiworker", "worker worker worker",
         "worker-0 worker-1, worker-1 worker-2, worker-2 worker-0"),
        ("ddp", "worker worker", "worker-0 worker-1, worker-1 worker-0"),
        ("torch-async", "ps worker worker", "ps-0 worker-0, ps-0 worker-1"),
        ("linear", "worker worker client", "client-0 worker-0, client-0 worker-1"),
        ("evaluator", "ps worker worker evaluator", "ps-0 worker-0, ps-0 worker-1"),
        ("hello", "local local", "local-0 local-1"),
        ("", "worker worker", ""),  # an own program
    ],
)  # fmt: skip
def test_connections(experiment: str, jobs: str, links: str) -> None:
    each = jobs.split()
    cluster = {job: ["a:1"] * each.count(job) for job in each}
    facts = {"experiment": experiment or "multiworker", "own": not experiment, "cluster": cluster}
    found = topology_of(of_run(run_info("r", **facts)))
    assert ", ".join(" ".join(pair) for pair in found.links) == links
    assert found.ring is (experiment in {"multiworker", "ddp"})


def expected(shape: ClusterShape) -> Counter[str]:
    """How often each text must be drawn: of the host, its nodes, their tasks and devices."""
    places = {gpu: place for place, gpu in enumerate(itertools.chain(*shape.nodes.values()))}
    used = {gpu for task in shape.tasks for gpu in task.gpus}
    texts = [f"x: one host, {f'{len(places)} GPUs' if places else 'no GPU is used'}", *shape.nodes]
    texts += [f"unused\n#{place}" for gpu, place in places.items() if gpu not in used]
    for task in shape.tasks:
        texts += [f"{task.job}-{task.index}", f"/job:{task.job}/task:{task.index}", task.address]
        texts += ["CPU:0", *(f"GPU:{own}\n#{places[gpu]}" for own, gpu in enumerate(task.gpus))]
    return Counter(texts)


@pytest.mark.parametrize("name", SHAPES)
def test_no_label_overlaps_another_or_is_cut(name: str) -> None:
    shape = SHAPES[name]
    figure = draw_shape(shape)
    found = labels(figure)
    assert {label: len(boxes) for label, boxes in found.items()} == expected(shape)
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


def test_a_ring_closes_below_the_nodes_between() -> None:
    shape = described("a: {}, b: {}, c: {}, d: {}", "worker: {on: [a, b, c, d]}")
    figure = draw_shape(replace(shape, experiment="multiworker"))
    figure.draw_without_rendering()
    patches = figure.axes[0].patches
    nodes = [each for each in patches if isinstance(each, FancyBboxPatch)][1:]
    arrows = [each for each in patches if isinstance(each, FancyArrowPatch)]
    (back,) = [each for each in arrows if each.get_path().get_extents().width > 5]
    low = sorted(back.get_path().vertices[:-1, 1])  # the last one only closes the tip
    assert low[0] == pytest.approx(low[1])  # level between its two lower corners
    assert low[1] < min(node.get_bbox().y0 for node in nodes)


def test_of_many_tasks_and_gpus_some_are_drawn() -> None:
    gpus = tuple(f"GPU-{number}" for number in range(100))
    tasks = tuple(
        replace(SHAPES["1"].tasks[0], index=index, gpus=() if index else gpus)
        for index in range(1000)
    )
    many = replace(SHAPES["1"], tasks=tasks, experiment="hello")
    found = labels(draw_shape(many))
    assert sum(label.startswith("/job:") for label in found) == MOST_TASKS
    assert any(label.endswith(f"{MOST_TASKS} of 1,000 tasks are drawn") for label in found)
    assert "84\nmore" in found
    assert len(cluster._topology(many).links) == MOST_TASKS * (MOST_TASKS - 1) / 2  # not all pairs


def test_render_draws_the_picture_beside_the_compose_file(project: Path) -> None:
    arguments = ("render", "--gpus", "none", "--picture")
    assert lab(project, *arguments, "a.svg").returncode == 0
    assert (project / "compose.yaml").is_file()
    first = (project / "a.svg").read_bytes()
    for name in ("a.svg", "b.svg"):  # the first is its own and may be replaced
        done = lab(project, *arguments, name, "--output", "-")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, f"wrote {name}")
        assert (project / name).read_bytes() == first
    assert ElementTree.fromstring(first).tag.endswith("}svg")  # noqa: S314  (our own)
    assert b"/job:worker/task:0" in first  # matplotlib comments each text
    assert b"dc:date" not in first


def test_a_picture_that_cannot_be_written(project: Path) -> None:
    done = lab(project, "render", "--gpus", "none", "--picture", "/dev/full")
    assert "/dev/full cannot be written (No space left on device)" in refused(done, 1)
    assert not (project / "compose.yaml").exists()
