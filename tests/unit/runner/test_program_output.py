"""Lines that programs printed: during a run, and of a run in the run store."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.protocol.records.echo import TensorFlowLines
from lab.protocol.volume import RunSpec
from lab.protocol.volume.states import State
from lab.runner.program_output import MOST_PER_S, PrintedLines
from lab.runner.store.directory import RunDir
from lab.runner.store.run_info import RunInfo
from lab.runner.view import View
from tests.support.cli import Cli
from tests.support.fakes import PLAN
from tests.support.specs import info, update

RENDEZVOUS = b"W0000 00:00:1795485455.806979     296 local_rendezvous.cc:412] Local rendezvous\n"
RESET = (
    b"Additional GRPC error information from remote target /job:local/replica:0/task:1 while"
    b" calling /tensorflow.WorkerService/DeleteWorkerSession:\n"
    b'UNKNOWN:Error received from peer  {grpc_status:14, grpc_message:"Connection reset by peer"}\n'
    b"Additional GRPC error information from remote target /job:local/replica:0/task:2 while"
    b" calling /tensorflow.WorkerService/DeregisterGraph:\n"
    b':UNKNOWN:Error received from peer  {grpc_message:"recvmsg:Connection reset by peer"}\n'
)
NODE = (
    b"2026-11-24 14:46:01.000001: W tensorflow/core/framework/op_kernel.cc:1829] UNAVAILABLE\n"
    b"\t [[{{node truediv_S35}}]]\n"
)
DEPRECATED = b"WARNING:tensorflow:From x\nInstructions for updating:\nUse y instead.\n"
TRACEBACK = b'Traceback (most recent call last):\n  File "a.py", line 1\n    x\n\nNameError: x\n'


class Shown:
    """Collects the shown lines, and can set the time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self.printed = PrintedLines("r1", self.show, View(info()).report_once)

    def show(self, task: str, lines: object) -> None:
        assert isinstance(lines, list)
        self.lines += [f"{task}: {line}" for line in lines]


def test_the_exception_of_a_rank_is_shown_in_one_short_line() -> None:
    shown = Shown()
    rank = b"[rank0]: "
    lines = [*TRACEBACK.splitlines()[:4], b"ValueError: " + b"x" * 300]
    shown.printed.feed("a-0", b"".join(rank + line + b"\n" for line in lines) + b"y" * 300 + b"\n")
    assert shown.lines == [
        f"a-0: [rank0]: ValueError: {'x' * 27}… (321 characters)",
        "a-0: " + "y" * 300,
    ]


def test_complete_lines_are_shown_in_order_and_a_resent_log_anew(notices: list[str]) -> None:
    shown = Shown()
    shown.printed.feed("a-0", b"one\ntw")
    shown.printed.feed("b-0", b"other\n")
    assert shown.lines == ["a-0: one", "b-0: other"]
    shown.printed.feed("a-0", b"o\nhalf")
    shown.printed.forget("a-0")
    shown.printed.feed("a-0", b"again\nthree")
    shown.printed.close()
    assert shown.lines[2:] == ["a-0: two", "a-0: again", "a-0: three"]
    assert notices == []


def test_tensorflows_lines_of_all_tasks_are_one_notice(notices: list[str]) -> None:
    shown = Shown()
    shown.printed.feed("a-0", RENDEZVOUS + b"mine\n" + RENDEZVOUS + DEPRECATED + RESET + NODE)
    shown.printed.feed("b-0", RENDEZVOUS)
    assert shown.lines == ["a-0: mine"]
    shown.printed.feed("a-0", b"a matrix:\n [[1, 2]]\n")
    assert shown.lines == ["a-0: mine", "a-0: a matrix:", "a-0:  [[1, 2]]"]
    assert len(notices) == 1
    assert "`lab logs r1 --tensorflow`" in notices[0]


GRAPH_ERROR = b"""\
Traceback (most recent call last):
  File "a.py", line 1
NotFoundError: Graph execution error:

Detected at node 'save' defined at (most recent call last):
    File "a.py", line 28, in <module>
Node: 'save'
From /job:ps/replica:0/task:0:
train is missing
\t [[{{node save}}]]

Original stack trace for 'save':
  File "a.py", line 28, in <module>

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2
KeyError: 1

own

  File "own.txt", line 1
own
own
  File "own.txt", line 2

"""


def test_of_a_graph_error_the_message_is_shown() -> None:
    shown = Shown()
    shown.printed.feed("a-0", GRAPH_ERROR)
    assert shown.lines == [
        "a-0: NotFoundError: Graph execution error:",
        "a-0: From /job:ps/replica:0/task:0:",
        "a-0: train is missing",
        "a-0: KeyError: 1",
        "a-0: own",
        "a-0: ",
        "a-0: own",
        "a-0: own",
        'a-0:   File "own.txt", line 2',
        "a-0: ",
    ]


LIBRARY = {
    "types": b"""\
2026-11-26 07:40:00.076345: W tensorflow/core/type_inference.cc:339] Type inference failed. This is:
type_id: TFT_OPTIONAL
args {
  type_id: TFT_INT64
}
 is neither a subtype nor a supertype of the combined inputs preceding it:
type_id: TFT_OPTIONAL

\tfor Tuple type infernce function 0
\twhile inferring type of node 'dnn/zero_fraction/cond/output/_9'
""",
    "config by Abseil": b"""\
I1126 07:40:42.708150 140400236686208 run_config.py:548] TF_CONFIG environment variable: {'cluster'
I1126 07:40:42.712150 140400236686208 estimator.py:201] Using config: {'_session_config': a: true
graph_options {
}
, '_keep_checkpoint_max': 5}
I1126 07:40:42.713376 140400236686208 training.py:776] Start Tensorflow server.
""",
    "waits": b"""\
I0000 00:00:1.2 3 coordination_service.cc:505] Example stragglers:
/job:worker/replica:0/task:1
/job:worker/replica:0/task:2
""",
    "dump": b"""\
I0000 00:00:1.2 3 eager_service_impl.cc:355] SessionOptions: goo.gle/debugproto   \x20
device_count {
  key: "CPU"
  value: 1
}
experimental {
  collective_group_leader: "/job:ps/replica:0/task:0"
  options {
    share: -1
  }
}
allow_soft_placement: true

""",
    "warnings": b"""\
/x/.venv/lib/python3.11/site-packages/keras/src/layers/core/dense.py:93: UserWarning: Do not pass
  super().__init__(activity_regularizer=activity_regularizer, **kwargs)
""",
    "config": b"""\
INFO:tensorflow:Using config: {'_model_dir': 'm', '_session_config': allow_soft_placement: true
graph_options {
  rewrite_options {
    meta_optimizer_iterations: ONE
  }
}
, '_keep_checkpoint_max': 5}
""",
    "gpus": b"""\
W0000 00:00:1.2 3 gpu_device.cc:2341] Cannot dlopen some GPU libraries. Follow the guide.
Skipping registering GPU devices...
""",
    "autograph": b"""\
WARNING:tensorflow:AutoGraph could not transform <f> and will run it as-is.
Please report this to the TensorFlow team. When filing the bug, set the verbosity to 10
Cause: mangled names are not yet supported
To silence this warning, decorate the function with @tf.autograph.experimental.do_not_convert
""",
    "abseil": b"W1126 07:00:00.123456 140 deprecation.py:50] From a.py:3: f is deprecated\n",
}
OWN = [
    b"I1126 07:00:00.123456 140 train.py:33] step 10",
    b"WARNING:root:own",
    b"INFO:absl:own",
    b"train.py:3: UserWarning: own",
    b"Cause: own",
    b"  indented",
    b"",
    b"Use:",
    b"See `x`.",
    b"{",
    b"WARNING: own",
]


@pytest.mark.parametrize("library", LIBRARY.values(), ids=LIBRARY)
@given(own=st.lists(st.sampled_from(OWN), max_size=4), last=st.sampled_from([b"own", b"{", b"}"]))
def test_all_lines_of_a_message_of_a_library_are_hidden_and_no_other(
    library: bytes, own: list[bytes], last: bytes
) -> None:
    lines = [last, *own]  # the lines below could continue the library's message only by their form
    hidden = TensorFlowLines()
    message = library.split(b"\n")[:-1]
    assert [hidden.has(line) for line in lines] == [False] * len(lines)
    assert [hidden.has(line) for line in message] == [True] * len(message)
    assert [hidden.has(line) for line in lines] == [False] * len(lines)


@given(st.lists(st.sampled_from(OWN) | st.text(st.characters(codec="ascii")).map(str.encode)))
def test_without_a_line_of_a_library_no_line_is_hidden(lines: list[bytes]) -> None:
    hidden = TensorFlowLines()
    assert not any(hidden.has(line) for line in lines)


def test_a_flood_is_counted_and_named(notices: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown()
    clock = SimpleNamespace(monotonic=lambda: shown.now)
    monkeypatch.setattr("lab.runner.program_output.time", clock)
    shown.printed.feed("a-0", b"x\n" * (MOST_PER_S - 1))
    shown.printed.feed("a-0", b"x\n" * 5)
    shown.printed.feed("b-0", b"y\n")
    assert len(shown.lines) == MOST_PER_S + 1
    assert notices == []
    shown.now = 1.0
    shown.printed.feed("a-0", b"z\n")
    assert shown.lines[-1] == "a-0: z"
    assert notices == ["a-0 printed 4 more lines: `lab logs r1 --task a-0`"]
    shown.printed.feed("a-0", b"x\n" * MOST_PER_S)
    shown.printed.close()
    assert notices[1:] == ["a-0 printed 1 more line: `lab logs r1 --task a-0`"]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "runs" / "20261124-0100-own-1a2b")
    made.create(
        RunInfo(
            made.run_id,
            RunSpec("own"),
            cluster=PLAN.cluster_spec(),
            state=State.SUCCEEDED,
            submitted_unix=1.0,
            collected=True,
        )
    )
    made.log("x").parent.mkdir()
    return made


def of(run: RunDir, *flags: str) -> list[str]:
    return ["logs", run.run_id, "--runs-dir", str(run.path.parent), *flags]


def test_the_lines_of_a_run_have_a_task_prefix(run: RunDir, cli: Cli) -> None:
    run.log("worker-0").write_bytes(RENDEZVOUS + b"one\n\x1b[31mtwo\n" + TRACEBACK)
    run.log("ps-0").write_bytes(b"serves\n")
    out, err = cli(*of(run))
    assert out.splitlines()[:3] == [
        "ps-0      | serves",
        "worker-0  | one",
        "worker-0  | two",
    ]
    assert out.splitlines()[-1] == "worker-0  | NameError: x"
    assert "Traceback" in out
    assert "`lab logs 20261124-0100-own-1a2b --tensorflow`" in err

    out, err = cli(*of(run, "--task", "worker-0", "--tensorflow", "--tail", "8"))
    assert out.startswith("worker-0  | W0000 00:00")
    assert err == ""
    assert len(cli(*of(run, "--tail", "1")).out.splitlines()) == 2


def test_a_run_without_a_line_and_one_under_way(run: RunDir, cli: Cli) -> None:
    out, err = cli(*of(run))
    assert out == ""
    assert "printed nothing" in err
    update(run, state=State.TRAINING)
    run.log("worker-0").write_bytes(b"one\n")
    out, err = cli(*of(run))
    assert out == "worker-0  | one\n"
    assert "has not ended; collect the rest with `lab attach" in err


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (["--task", "worker-7"], "has no task 'worker-7'"),
        *((flag, "is only for an environment") for flag in (["--follow"], ["--since", "10m"])),
    ],
)
def test_flags_that_do_not_fit_are_refused(
    run: RunDir, flags: list[str], what: str, cli: Cli
) -> None:
    assert what in cli(*of(run, *flags), code=2).err
    error = "--tensorflow is only for a run; name a run: `lab logs last`"
    assert error in cli("logs", "--tensorflow", code=2).err


def test_a_log_that_is_a_link_is_not_read(run: RunDir, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    run.log("worker-0").symlink_to(tmp_path / "secret")
    out, err = cli(*of(run), code=1)
    assert "secret" not in out
    assert "it is not a regular file" in err
