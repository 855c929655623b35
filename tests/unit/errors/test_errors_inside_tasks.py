"""Error messages of agents and programs inside a task, and the reasons that agents write."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.task.agent.agent_config import AgentConfig, AgentConfigError
from lab.task.agent.oneshot import OneshotError, request_for
from lab.task.protocol.states import State
from lab.task.sdk import flags
from lab.task.sdk.data import DataError, load_mnist
from lab.task.sdk.program import ProgramError, make_directory
from tests.support.agents import Stage

ENVIRON = {
    "LAB_PROJECT": "mnist",
    "LAB_NODE": "tf1",
    "LAB_TASK": "worker-0",
    "LAB_CLUSTER": '{"worker": ["tf1:2222"]}',
    "LAB_RUNS": "/runs",
    "LAB_SCRIPTS": "/lab/scripts",
    "LAB_DATA": "/lab/data",
}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LAB_NODE", "", "LAB_NODE not set"),
        ("LAB_TASK", "worker", "LAB_TASK is not a task name: 'worker'"),
        ("LAB_TASK", "worker-3", "LAB_CLUSTER is not a cluster spec with worker-3"),
    ],
)
def test_variables_of_an_agent(name: str, value: str, message: str) -> None:
    with pytest.raises(AgentConfigError, match=message):
        AgentConfig.from_environ({**ENVIRON, name: value})


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"LAB_EXPERIMENT": "asink"}, "no experiment 'asink'; did you mean 'async'?"),
        (
            {"LAB_EXPERIMENT": "async"},
            "async needs the job 'ps'; change `jobs:` in the config",
        ),
        (
            {
                "LAB_EXPERIMENT": "async",
                "LAB_CLUSTER": '{"ps": ["a:1"], "worker": ["b:1"], "chief": ["c:1"]}',
            },
            "async does not use the job 'chief'; change `jobs:` in the config",
        ),
        (
            {
                "LAB_EXPERIMENT": "async",
                "LAB_FLAGS": "--epochs '2",
                "LAB_CLUSTER": '{"ps": ["a:1"], "worker": ["b:1"]}',
            },
            "LAB_FLAGS: No closing quotation; write it as in a shell",
        ),
        (
            {
                "LAB_EXPERIMENT": "async",
                "LAB_TENSORFLOW_VERSION": "2.15",
                "LAB_CLUSTER": '{"ps": ["a:1"], "worker": ["b:1"]}',
            },
            "async needs TensorFlow 2.21, but the environment has 2.15;"
            " render with --tensorflow 2.21",
        ),
    ],
)
def test_a_run_requested_by_variables(variables: dict[str, str], message: str) -> None:
    with pytest.raises(OneshotError, match=message.replace("?", r"\?")):
        request_for(AgentConfig.from_environ({**ENVIRON, **variables}))


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProgramError, match=r"cannot be created \(Not a directory\); use a dir"):
        make_directory(tmp_path / "file" / "model")


def test_a_batch_larger_than_the_data() -> None:
    with pytest.raises(DataError, match=r"is larger than the 55000 training images; use --batch"):
        load_mnist().train.batches_per_epoch(60_000)


def test_a_flag_that_takes_one_of_several(capsys: pytest.CaptureFixture[str]) -> None:
    parser = flags.training_flags("Trains.")
    parser.add_argument("--colour", type=flags.one_of("red", "blue"))
    with pytest.raises(SystemExit):
        flags.parse(parser, ["--colour=green"])
    assert "argument --colour: 'green' is not one of red, blue" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-0.1", "nan", "inf", "long"])
def test_an_invalid_pause(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = flags.training_flags("Trains.")
    parser.add_argument("--pause", type=flags.amount)
    with pytest.raises(SystemExit):
        flags.parse(parser, [f"--pause={text}"])
    assert f"argument --pause: {text!r} is not a number from 0" in capsys.readouterr().err


# ---- Reasons


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def test_a_program_that_cannot_be_started(stage: Stage) -> None:
    stage.submit(stage.program("print(1)"), "x" * 200_000)
    stage.agent("worker-0")
    reason = stage.wait_state("worker-0", State.FAILED).reason
    assert reason.endswith("program.py cannot be started: Argument list too long")


def test_a_log_that_cannot_be_written(stage: Stage) -> None:
    stage.submit(
        stage.program(
            "import os, resource\n"
            "resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (8_000, 8_000))\n"
            "print('x' * 10_000)\n"
        )
    )
    stage.agent("worker-0")
    reason = stage.wait_state("worker-0", State.FAILED).reason
    assert reason.endswith("cannot be written: File too large; make room on it")


def test_a_run_cancelled_without_a_reason(stage: Stage) -> None:
    stage.submit(stage.program("print(1)"))
    stage.volume.cancel("r1").write_text("{}")
    stage.agent("worker-0")
    assert stage.wait_state("worker-0", State.CANCELLED).reason == "cancelled"
