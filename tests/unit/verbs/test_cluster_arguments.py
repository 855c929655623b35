"""Placeholders in a program's arguments and variables, and addresses in its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.backends.rendered_file import planned_run
from lab.base.errors import InputError
from lab.cluster.config import parse_cluster
from lab.programs.own import read_program
from lab.protocol.volume import Request, RunSpec
from lab.protocol.volume.run_spec import fill_in, has_placeholders
from lab.runner.fitting import check_texts
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.store.settings import command, settings_of
from lab.task.agent.autorun import requested
from lab.verbs.run import parse_variable
from lab.verbs.run import run as train
from tests.support.cli import Host
from tests.support.programs import prepared

JOBS = {"ps": 1, "worker": 2}


PAIR = ["ps-0", "worker-0", "worker-1"]


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        (RunSpec("x", args=("--c={chief_hosts}",), own=True),
         "{chief_hosts}: the run has no chief; its tasks are ps-0, worker-0, worker-1"),
        (RunSpec("x", args=("{host:worker-2}",), own=True),
         "{host:worker-2}: the run has no worker-2; its tasks are ps-0, worker-0, worker-1"),
        (RunSpec("x", env={"": {"A": "{rank}"}}),
         "{rank}: the run has no rank; use {index}"),
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


FIXED = "c = tf.train.ClusterSpec({'ps': ['192.168.1.4:80'], 'worker': ['192.168.1.5:80']})\n"


def notice(folder: Path, source: str, *args: str) -> str:
    (folder / "main.py").write_text(source, encoding="utf-8")
    found = read_program(str(folder / "main.py"), jobs=JOBS, argv=args, nodes=["tf1", "tf2"])
    return found.notice


def test_addresses_of_other_hosts_have_a_notice(tmp_path: Path) -> None:
    assert notice(tmp_path, FIXED) == (
        "main.py has addresses of other hosts in its source, such as 192.168.1.4:80: its tasks"
        " cannot find each other; replace them with NODE:PORT from the config"
    )


@pytest.mark.parametrize(
    "address", ["ps0.example.com:2222", "grpc://gpu-1:2222", "worker_1:22222", "tf3:2222"]
)
def test_names_of_other_hosts_have_a_notice(address: str, tmp_path: Path) -> None:
    found = notice(tmp_path, f"s = tf.train.Server({{'worker': ['tf1:2222', '{address}']}})")
    assert found.startswith(
        f"main.py has addresses of other hosts in its source, such as {address}: "
    )


@pytest.mark.parametrize(
    ("source", "args"),
    [
        (FIXED.replace("192.168.1.4:80", "tf1:2222").replace("192.168.1.5:80", "tf2:2222"), []),
        (FIXED.replace("192.168.1.4:80", "localhost:2222").replace("192.168.1.5:80", "gpu:0"), []),
        (FIXED.replace("192.168.1.4:80", "seen at 12:3000").replace("192.168.1.5:80", "a:1"), []),
        (f"p.add_argument('--ps_hosts', default='192.168.1.4:80')\n{FIXED}", []),
        (FIXED.replace("192.168.1", "127.0.0"), []),
        ("other = '192.168.1.4:80'", []),
        (FIXED, ["{job}", "{index}"]),
    ],
)
def test_other_programs_have_none(source: str, args: list[str], tmp_path: Path) -> None:
    assert notice(tmp_path, source, *args) == ""


@pytest.mark.parametrize("raw", ["A", "=1", "1A=2", "A B=1", "A=\0"])
def test_a_variable_has_a_name_and_a_value(raw: str) -> None:
    with pytest.raises(InputError, match=r"env: .* is not NAME=VALUE"):
        train("async", env=[raw])


def test_variables_of_the_command_line_and_the_config_reach_the_run(host: Host) -> None:
    host.backend.environment = None
    jobs = "worker: {on: [tf1, tf2], env: {A: 1, B: '{index}'}}"
    spec = RunSpec("own.py", env={"": dict([parse_variable("C=x=y")])})
    run, _ = prepared("x = 1\n", jobs=jobs, spec=spec)
    assert run.spec.env == {"": {"C": "x=y"}, "worker": {"A": "1", "B": "{index}"}}
    info = RunInfo("r", run.spec, backend="local")
    assert "--env C=x=y" in command(info)
    assert settings_of(RunDir(Path("r")), info)["variables worker"] == "A=1 'B={index}'"
    assert Request.from_json(Request("r1", run.spec, {}).to_json()).spec == run.spec


def test_a_rendered_run_has_the_variables_of_the_config() -> None:
    jobs = b"jobs: {ps: {on: [tf1]}, worker: {on: [tf2], env: {A: '$x'}}}"
    text = b"version: 1\nname: own\nnodes: {tf1: {}, tf2: {}}\nrun: {experiment: async}\n" + jobs
    planned = planned_run(parse_cluster(text, "own.yaml"))
    environ = {
        **{"LAB_RUN": planned.command, "LAB_RUN_TERMS": planned.terms},
        "LAB_CLUSTER": json.dumps({"ps": ["tf1:1"], "worker": ["tf2:1"]}),
    }
    request = requested(environ)
    assert request is not None
    assert request.spec.env == {"worker": {"A": "$x"}}
