"""`lab init`: a config for any host, which is valid and fits that host."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from lab.base.image_digest import digest
from lab.base.units import GIB, MIB
from lab.cluster.config import Cluster, parse_cluster
from lab.cluster.config.cluster import PROJECT
from lab.cluster.gpu import Gpu, Inventory
from lab.cluster.placement.config_generator import generate, name_from
from lab.cluster.placement.place import place
from lab.cluster.placement.plan import Plan
from tests.golden.boxes import box, mig_of, uuid_of
from tests.support.cli import ROOT, lab, lab_process, refused
from tests.support.conditions import ATTACKS
from tests.support.nvml.box import Box, load
from tests.support.nvml.library import Driver

CLUSTERS = ROOT / "clusters"

NAMED = (
    load("eight-h100")
    .cards[0]
    .model_copy(update={"name": "Evil - Card \x1b[31m # {} \u20ac", "links": ()})
)
NO_GPUS = Inventory("none", (), 2, 3 * GIB)
HOSTILE = load("bare").model_copy(update={"cards": (NAMED,)})


def made(inventory: Inventory, name: str = "mine") -> Cluster:
    return parse_cluster(generate(inventory, name)[0].encode(), "cluster.yaml")


def planned(inventory: Inventory) -> Plan:
    return place(made(inventory), inventory)


def shape(inventory: Inventory) -> tuple[int, int, int]:
    plan = planned(inventory)
    workers = [task for task in plan.tasks if task.job == "worker"]
    (gpus,) = {len(task.gpus) for task in workers}
    return len(plan.nodes), len(workers), gpus


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        (0, (4, 3, 0)),
        (1, (1, 3, 1)),  # shared, as in the book
        (2, (3, 2, 1)),
        (4, (5, 4, 1)),
        (7, (8, 7, 1)),
        (8, (5, 4, 2)),
        (11, (5, 4, 2)),  # three stay idle
        (16, (5, 4, 4)),
    ],
)
def test_a_template_for_each_number_of_gpus(gpus: int, expected: tuple[int, int, int]) -> None:
    assert shape(box(gpus) if gpus else NO_GPUS) == expected


def test_slices_are_pinned_by_their_uuids() -> None:
    plan = planned(box(1, slices=3))
    assert [task.gpus for task in plan.tasks] == [
        (),
        (uuid_of(0),),
        *((mig_of(index),) for index in range(3)),
    ]
    assert planned(box(0, slices=1)).tasks[3].gpus == (mig_of(0),)


@pytest.mark.parametrize(("whole", "slices", "workers"), [(0, 7, 7), (0, 14, 8), (8, 7, 8)])
def test_a_worker_gets_one_slice_at_most(whole: int, slices: int, workers: int) -> None:
    assert shape(box(whole, slices=slices)) == (workers + 1, workers, 1)


@pytest.mark.parametrize("gpus", [0, 1, 11])
def test_the_text_of_a_config(gpus: int, snapshot: SnapshotAssertion) -> None:
    assert generate(box(gpus, cpus=1) if gpus else NO_GPUS, "mine")[0] == snapshot


def test_the_text_of_a_config_for_slices(snapshot: SnapshotAssertion) -> None:
    assert generate(box(0, slices=2), "null") == snapshot


@settings(max_examples=60 * ATTACKS)
@given(
    st.builds(
        lambda whole, slices, cpus, memory, cards: Inventory(
            "uuid" if whole + slices else "none",
            (
                *(Gpu(i, uuid_of(i), cards[i % 3], memory) for i in range(whole)),
                *(Gpu(16, mig_of(i), cards[i % 3], memory // 7) for i in range(slices)),
            ),
            cpus,
            memory,
        ),
        st.integers(0, 16),
        st.sampled_from([0, 0, 1, 2, 7, 14]),
        st.integers(1, 256),
        st.integers(64 * MIB, 1 << 43) | st.just(0),
        st.tuples(st.text(max_size=80), st.text(max_size=80), st.just("")),
    ),
    st.text(),
)
def test_every_host_gets_a_fitting_config(inventory: Inventory, directory: str) -> None:
    name = name_from(directory)
    text, _ = generate(inventory, name)
    assert all(len(line) <= 100 for line in text.splitlines())
    cluster = parse_cluster(text.encode(), "cluster.yaml")
    assert cluster.name == name
    workers = [task for task in place(cluster, inventory).tasks if task.job == "worker"]
    assert all(task.gpus for task in workers) == bool(inventory.gpus)
    if not cluster.jobs["worker"].share:
        assert len({len(task.gpus) for task in workers}) == 1


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("My Würfel 2", "my-wurfel-2"),
        ("1e3", "1e3"),
        ("null", "null"),
        ("0x1f", "0x1f"),
        ("", "lab"),
        ("漢字", "lab"),
        ("--", "lab"),
        ("x" * 99, "x" * 31),
        ("a\nb: c", "a-b-c"),
    ],
)
def test_any_directory_gives_a_name(directory: str, name: str) -> None:
    assert name_from(directory) == name
    assert re.fullmatch(PROJECT, name)
    assert made(box(2), name=name).name == name


def test_init_writes_a_project_for_this_host(tmp_path: Path) -> None:
    done = lab(tmp_path, "init", "--gpus", "none")
    assert done.returncode == 0
    assert done.stdout == ""
    assert f"wrote cluster.yaml: {name_from(tmp_path.name)}, 1 ps and " in done.stderr
    wrote = "wrote .gitignore, Dockerfile.gpu, data/README.md, scripts/, and .lab/image/ for the"
    assert wrote in done.stderr
    assert "train with `lab run async`" in done.stderr
    for name in ("Dockerfile.gpu", "scripts/mnist_async.py", "data/README.md"):
        assert (tmp_path / name).read_bytes() == (ROOT / name).read_bytes()
    ignored = (tmp_path / ".gitignore").read_text().splitlines()
    assert {"/runs/", "compose.yaml", "*.pem", "*.zip"} <= {*ignored}
    assert not {"/mutants/", "node_modules/", ".mypy_cache/"} & {*ignored}  # of this repository
    image = tmp_path / ".lab/image"
    assert digest(image / "lab") == digest()
    assert (image / "requirements/image-cpu.txt").is_file()
    assert list(image.rglob("__pycache__")) == []
    assert json.loads(lab(tmp_path, "validate", "--json").stdout)["valid"]
    assert lab(tmp_path, "render", "--gpus", "none", "--output", "-").returncode == 0


def test_init_keeps_every_file_of_a_project(tmp_path: Path) -> None:
    own = ("scripts/mnist_async.py", "Dockerfile.gpu", ".gitignore")
    for name in own:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    again = ""
    for flags in ([], ["--force"]):
        again = lab(tmp_path, "init", "--gpus", "none", *flags).stderr
        assert [(tmp_path / name).read_text() for name in own] == ["mine"] * 3
    assert "kept existing files: .gitignore, Dockerfile.gpu, scripts/mnist_async.py\n" in again
    assert "scripts/, " not in again
    assert (tmp_path / "scripts/mnist_sync.py").is_file()


def test_a_config_in_a_subdirectory_or_behind_a_link_gets_no_second_project(tmp_path: Path) -> None:
    assert lab(tmp_path, "init", "--gpus", "none").returncode == 0
    (tmp_path / "more").mkdir()
    assert lab(tmp_path, "init", "--gpus", "none", "--output", "more/x.yaml").returncode == 0
    assert [each.name for each in (tmp_path / "more").iterdir()] == ["x.yaml"]
    (tmp_path / "device").symlink_to(tmp_path / "more/x.yaml")
    (tmp_path / "more/x.yaml").write_text("")
    written = lab(tmp_path, "init", "--gpus", "none", "--output", "device", "--force")
    assert written.returncode == 0
    assert "nodes:" in (tmp_path / "more/x.yaml").read_text()


def test_init_overwrites_a_file_only_with_force(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("mine")
    (tmp_path / "link.yaml").symlink_to("nowhere")
    for arguments in (["--gpus", "none"], ["--output", "link.yaml"]):
        assert "already exists" in refused(lab(tmp_path, "init", *arguments))
        assert file.read_text() == "mine"
    assert lab(tmp_path, "init", "--gpus", "none", "--force").returncode == 0
    assert file.read_text() != "mine"


def test_a_pipe_or_a_loop_of_links_instead_of_the_config(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cluster.yaml")
    message = "error: cluster.yaml is a pipe; remove it, or name a file with --output"
    assert message in refused(lab(tmp_path, "init"))
    (tmp_path / "cluster.yaml").unlink()
    (tmp_path / "cluster.yaml").symlink_to("cluster.yaml")
    assert "internal" not in lab(tmp_path, "validate").stderr


def test_init_prints(tmp_path: Path) -> None:
    done = lab(tmp_path, "init", "--gpus", "4", "--output", "-")
    cluster = parse_cluster(done.stdout.encode(), "-")
    assert (cluster.name, cluster.gpus_needed) == (name_from(tmp_path.name), 4)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("eight-h100", "this host has 8 GPUs (8 x NVIDIA H100"),
        ("mig", "MIG slice"),
        (HOSTILE, "(1 x Evil - Card \\x1b[31m # {} ?"),
        (load("bare").model_copy(update={"cards": ()}), "this host has no GPU"),
        ("not-loaded", "no NVIDIA driver answers (Driver Not Load"),
    ],
    ids=["GPUs", "slices", "hostile", "none", "no driver"],
)
def test_init_uses_the_driver(
    tmp_path: Path, driver: Callable[[str | Box], Driver], host: str | Box, expected: str
) -> None:
    (tmp_path / "scripts").mkdir()
    done = lab_process(tmp_path, "init", **driver(host).environment)
    assert done.returncode == 0, done.stderr
    assert expected in done.stderr
    assert "\x1b" not in done.stderr + (tmp_path / "cluster.yaml").read_text()
    rendered = lab_process(tmp_path, "render", "--output", "-", **driver(host).environment)
    assert rendered.returncode == 0
    assert bool(re.search("(GPU|MIG)-[0-9a-f]", rendered.stdout)) is ("no" not in expected)
