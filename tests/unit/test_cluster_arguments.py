"""Placeholders for the cluster in a program's arguments, and addresses in its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.config import parse_cluster
from lab.errors import InputError
from lab.program.own import read_program
from lab.run.fitting import check_texts
from lab.volume import RunSpec
from lab.volume.run_spec import fill_in, has_placeholders

JOBS = {"ps": 1, "worker": 2}


PAIR = parse_cluster(
    b"{version: 1, name: pair, nodes: {tf1: {}, tf2: {}},"
    b" jobs: {ps: {on: [tf1]}, worker: {on: [tf1, tf2]}}}",
    "pair.yaml",
)


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (RunSpec("x", args=("--c={chief_hosts}",), own=True),
         "{chief_hosts}: the config has no job 'chief'; use {ps_hosts} or {worker_hosts}"),
        (RunSpec("x", args=("{host:worker-2}",), own=True),
         "{host:worker-2}: there is no task 'worker-2'; use one of ps-0, worker-0, worker-1"),
        (RunSpec("x", env={"": {"A": "{rank}"}}),
         "{rank}: a task of TensorFlow has no rank; use {index}"),
        (RunSpec("x", env={"": {"A": "", "LAB_TASK": "worker-1"}}),
         "--env: lab itself sets LAB_TASK; use another variable"),
        (RunSpec("x", env={"worker": {"RANK": "0"}}, framework="torch"),
         "jobs.worker.env: lab itself sets RANK; use another variable"),
    ],
)  # fmt: skip
def test_wrong_placeholders_and_variables_are_refused(spec: RunSpec, error: str) -> None:
    with pytest.raises(InputError) as caught:
        check_texts(spec, PAIR)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    "spec",
    [
        RunSpec("x", args=("--c={chief_hosts}",)),  # lab's own programs get it as it is
        RunSpec("x", args=("{host:worker-1}", "{size}"), own=True, framework="jax"),
        RunSpec("x", env={"": {"RANK": "{index}", "OMP_NUM_THREADS": "2"}}),
    ],
)
def test_others_are_accepted(spec: RunSpec) -> None:
    check_texts(spec, PAIR)


def test_braces_of_the_program_are_no_placeholders() -> None:
    assert not has_placeholders(('{"job": {}}', "{indexes}", "{}", "{host: a}"))
    assert has_placeholders(("--workers={worker_hosts}",))


CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1"], "chief": []}


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        ("--job={job}", ["--job=worker"]),
        ("{job}-{index}", ["worker-1"]),
        ("--workers={worker_hosts}", ["--workers=tf2:1,tf3:1"]),
        ("--all=ps|{ps_hosts},worker|{worker_hosts}", ["--all=ps|tf1:1,worker|tf2:1,tf3:1"]),
        ("{worker_hosts...}", ["tf2:1", "tf3:1"]),
        ("--host={worker_hosts...}@{index}", ["--host=tf2:1@1", "--host=tf3:1@1"]),
        ("--hosts={worker_names}", ["--hosts=tf2,tf3"]),
        ("{worker_names...}", ["tf2", "tf3"]),
        ("--plain", ["--plain"]),
        ('{"a": {}, "index": 0}', ['{"a": {}, "index": 0}']),
        ("--chiefs={chief_hosts}", []),
        ("{evaluator_hosts...}", []),
        ("tcp://{address:worker-0}", ["tcp://tf2:1"]),
        ("{host:ps-0}:{index}", ["tf1:1"]),
        ("{address:worker-7}", []),
        ("--rank={rank}", []),
    ],
)
def test_a_template_is_filled_in_for_a_task(template: str, arguments: list[str]) -> None:
    assert list(fill_in(template, {"job": "worker", "index": "1"}, CLUSTER)) == arguments


# ---- Addresses in the source.

FIXED = "c = tf.train.ClusterSpec({'ps': ['192.168.1.4:80'], 'worker': ['192.168.1.5:80']})\n"


def notice(folder: Path, source: str, *args: str) -> str:
    (folder / "main.py").write_text(source, encoding="utf-8")
    return read_program(str(folder / "main.py"), jobs=JOBS, argv=args).notice


def test_addresses_of_other_hosts_have_a_notice(tmp_path: Path) -> None:
    assert notice(tmp_path, FIXED) == (
        "main.py has addresses of other hosts in its source, such as 192.168.1.4:80: its tasks do"
        " not find each other; replace them by NODE:PORT of the config"
    )


@pytest.mark.parametrize(
    ("source", "args"),
    [
        (f"p.add_argument('--ps_hosts', default='192.168.1.4:80')\n{FIXED}", []),
        (FIXED.replace("192.168.1", "127.0.0"), []),
        ("other = '192.168.1.4:80'", []),
        (FIXED, ["{job}", "{index}"]),
    ],
)
def test_other_programs_have_none(source: str, args: list[str], tmp_path: Path) -> None:
    assert notice(tmp_path, source, *args) == ""
