"""The flags of the training programs: both spellings, TF_CONFIG, a clear line for each fault."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.base.converters import one_of
from lab.protocol.experiments.program_flags import amount
from lab.task.sdk.flags import argument, experiment_flags, parse

CLUSTER = ["--job_name=worker", "--task_index=1", "--ps_hosts=tf1:2222"]
WORKERS = "--worker_hosts=tf2:2222,tf3:2222"
HOSTS = {"ps": ["tf1:2222"], "worker": ["tf2:2222", "tf3:2222"]}
TF_CONFIG = {
    "cluster": HOSTS,
    "task": {"type": "worker", "index": 1},
}


def flags(*arguments: str, **environment: str) -> dict[str, object]:
    parser = experiment_flags("async", "A program.")
    parser.add_argument("--colour", type=argument(one_of("red", "blue")))
    parser.add_argument("--pause", type=argument(amount))
    with patch.dict(os.environ, environment):
        return vars(parse(parser, list(arguments)))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str, **environment: str) -> str:
    with pytest.raises(SystemExit) as ended:
        flags(*arguments, **environment)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ").removesuffix("; --help lists all flags")


def test_the_defaults_are_the_chapters() -> None:
    found = flags(*CLUSTER, WORKERS)
    assert (found["job_name"], found["task_index"]) == ("worker", 1)
    assert (found["ps_hosts"], found["worker_hosts"]) == (["tf1:2222"], ["tf2:2222", "tf3:2222"])
    assert (found["model"], found["epochs"], found["batch_size"]) == ("softmax", 50, 100)
    assert (found["global_steps"], found["learning_rate"], found["seed"]) == (0, None, 0)
    assert (found["record_every"], found["ps_strategy"]) == (100, "round_robin")
    assert (found["data_dir"], found["checkpoint_dir"]) == (None, None)
    assert found["log_device_placement"] is False


def test_every_other_flag() -> None:
    found = flags(
        *("--job_name=ps", "--task_index=0", "--ps_hosts=[::1]:1,ps.lab:65535"),
        *("--worker_hosts", "10.0.0.1:2"),
        *("--model=mlp", "--epochs=2", "--global_steps=7", "--batch_size=5", "--seed=9"),
        *("--learning_rate=1e-3", "--record_every=1", "--ps_strategy=greedy"),
        *("--data_dir=/d", "--checkpoint_dir=c", "--gpu_memory_fraction=0.2"),
    )
    assert (found["task_index"], found["ps_hosts"]) == (0, ["[::1]:1", "ps.lab:65535"])
    assert (found["learning_rate"], found["gpu_memory_fraction"]) == (0.001, 0.2)
    assert (found["data_dir"], found["checkpoint_dir"]) == (Path("/d"), Path("c"))
    assert (found["epochs"], found["global_steps"], found["seed"]) == (2, 7, 9)


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("--log_device_placement", True),
        ("--log_device_placement=true", True),
        ("--log_device_placement=False", False),
    ],
)
def test_the_switch_may_have_a_value(argument: str, value: bool) -> None:
    assert flags(*CLUSTER, WORKERS, argument)["log_device_placement"] is value


def test_tf_config_replaces_missing_flags() -> None:
    found = flags("--task_index=0", TF_CONFIG=json.dumps(TF_CONFIG))
    assert (found["job_name"], found["task_index"]) == ("worker", 0)
    assert found["worker_hosts"] == ["tf2:2222", "tf3:2222"]


def test_tf_config_is_not_read_with_all_flags() -> None:
    assert flags(*CLUSTER, WORKERS, TF_CONFIG="rubbish")["task_index"] == 1


def test_the_memory_fraction_is_from_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAB_GPU_MEMORY_FRACTION", "0.25")
    assert flags(*CLUSTER, WORKERS)["gpu_memory_fraction"] == 0.25
    monkeypatch.setenv("LAB_GPU_MEMORY_FRACTION", "2")
    assert refusal(capsys, *CLUSTER, WORKERS).endswith("'2' is not a share, above 0 and at most 1")


@pytest.mark.parametrize(
    "argument",
    [
        *(f"--epochs={text}" for text in ("0", "1.5", "-1", "1_0")),
        *(f"--seed={text}" for text in ("-1", "9" * 19)),
        *(f"--learning_rate={text}" for text in ("0", "nan", "inf", "fast")),
        *(f"--worker_hosts={text}" for text in ("", "a:1,", "a", "a:0", "a:65536", "a b:1")),
        "--gpu_memory_fraction=1.1", "--log_device_placement=maybe",
        "--task_index=2", "--ps_hosts=tf3:2222", "--epoch=1", "stray",
        "--colour=green", "--pause=-0.1", "--pause=nan", "--pause=inf", "--pause=long",
    ],
)  # fmt: skip
def test_a_wrong_flag_is_one_line(
    capsys: pytest.CaptureFixture[str], argument: str, snapshot: SnapshotAssertion
) -> None:
    assert refusal(capsys, *CLUSTER, WORKERS, argument) == snapshot


@pytest.mark.parametrize("absent", range(4))
def test_a_missing_cluster(capsys: pytest.CaptureFixture[str], absent: int) -> None:
    arguments = [*CLUSTER, WORKERS]
    name = arguments.pop(absent).partition("=")[0]
    assert refusal(capsys, *arguments) == f"{name} is missing; give it, or set TF_CONFIG"


@pytest.mark.parametrize(
    "config",
    [
        "{", "[]", "{}",
        {**TF_CONFIG, "cluster": {"worker": ["a:1"]}},
        {**TF_CONFIG, "cluster": {"ps": 1, "worker": 2}},
        {**TF_CONFIG, "cluster": {"ps": [], "worker": ["a:1"]}},
        {**TF_CONFIG, "task": {"type": "worker", "index": -1}},
        {**TF_CONFIG, "task": {"type": "chief", "index": 0}},
        {**TF_CONFIG, "cluster": {**HOSTS, "chief": ["a:1"]}},
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_tf_config_is_one_line(
    capsys: pytest.CaptureFixture[str], config: object, snapshot: SnapshotAssertion
) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    assert refusal(capsys, TF_CONFIG=text) == snapshot
