"""Lines of the book, the towers and TensorFlow, read as records.

`test_printed_lines.py` tests all other lines.
"""

from __future__ import annotations

import math
import time

import pytest

from lab.protocol.records import MAX_BYTES, Record, format_record
from lab.protocol.records.log_parsers import LogParser
from tests.support.programs import printed

RPC = "tensorflow/core/distributed_runtime/rpc/"
RUNTIME = "tensorflow/core/distributed_runtime/"

LINES = """
worker=0,epoch=9,global_step=10896, local_step=5500, loss = 1.2575616836547852
    lab kind=epoch epoch=9 local_step=5500 global_step=10896 loss=1.2575616836547852
 worker = 0 , epoch = 9 ,\tglobal_step = 10896,local_step =5500 ,loss= 1.25e-3\r
    lab kind=epoch epoch=9 local_step=5500 global_step=10896 loss=0.00125
2017-10-31 16:00:00.123456: step 10, loss = 2.31 (8123.4 examples/sec; 0.012 sec/batch)
    lab kind=step local_step=10 loss=2.31
# a datetime without a fraction has none in print
2017-10-31 16:00:00: step 0, loss = 2.31 (8.1 examples/sec; 12.300 sec/batch)
    lab kind=step local_step=0 loss=2.31
# TensorFlow's runtime
I tensorflow/core/distributed_runtime/rpc/grpc_server_lib.cc:316] Started server with target: \
grpc://localhost:2222
    lab kind=event status=ready message="serves at grpc://localhost:2222"
I0000 00:00:1795271203.578599   16674 grpc_channel.cc:271] Initialize GrpcChannelCache for job \
worker -> {0 -> tf2:2222, 1 -> tf3:2222, 2 -> localhost:2222}
    lab kind=event message="knows job worker: tf2:2222, tf3:2222, localhost:2222"
INFO:tensorflow:Waiting 599.628217 secs before starting next eval run.
    lab kind=event message="waits 599 s before starting next eval run"
I tensorflow/core/distributed_runtime/master.cc:209] CreateSession still waiting for response \
from worker: /job:worker/replica:0/task:2
    lab kind=event message="waits for worker-2"
I tensorflow/core/distributed_runtime/master_session.cc:998] Start master session \
939d3a7fc132946a with config: allow_soft_placement: true
    lab kind=event message="begins session 939d3a7fc132946a"
# where the configuration is empty, or continues in the next line
I tensorflow/core/distributed_runtime/master_session.cc:928] Start master session \
939d3a7fc132946a with config:\x20
    lab kind=event message="begins session 939d3a7fc132946a"
# before 1.0
I tensorflow/core/distributed_runtime/rpc/grpc_channel.cc:206] Initialize \
HostPortsGrpcChannelCache for job ps -> {tf1:2222}
    lab kind=event message="knows job ps: tf1:2222"
# since 1.4
2017-10-31 16:00:00.123456: I tensorflow/core/distributed_runtime/master.cc:209] CreateSession \
still waiting for response from worker: /job:ps/replica:0/task:0
    lab kind=event message="waits for ps-0"
I1121 14:23:45.123456 15148 grpc_server_lib.cc:467] Started server with target: grpc://tf1:2222
    lab kind=event status=ready message="serves at grpc://tf1:2222"
"""


@pytest.mark.parametrize(("line", "record"), printed(LINES))
def test_a_line_of_a_listing_or_of_tensorflows_runtime(line: str, record: Record) -> None:
    assert LogParser().read(line.encode()) == record


@pytest.mark.parametrize("loss", ["nan", "-nan", "inf", "-inf", "1e400", "9" * 400])
@pytest.mark.parametrize(
    "line",
    [
        "worker=0,epoch=9,global_step=10896, local_step=5500, loss = {}",
        "2017-10-31 16:00:00.1: step 10, loss = {} (1.0 examples/sec; 0.012 sec/batch)",
    ],
)
def test_a_diverged_loss_is_recorded(line: str, loss: str) -> None:
    record = LogParser().read(line.format(loss).encode())
    assert not math.isfinite(float(record["loss"]))


def test_a_message_is_safe_and_short() -> None:
    hosts = ", ".join(f"{index} -> node{index}:2222" for index in range(700))
    for channels in (hosts, "0 -> a\x1b[31m\xff"):
        record = LogParser().read(
            f"I {RPC}grpc_channel.cc:215] Initialize GrpcChannelCache for job worker -> "
            f"{{{channels}}}".encode("latin-1")
        )
        message = str(record["message"])
        assert len(message) <= 300
        assert message.isprintable()
        assert len(format_record(record)) < MAX_BYTES


@pytest.mark.parametrize(
    "line",
    [
        "",
        "worker",
        "worker=0,epoch=9.5,global_step=10896, local_step=5500, loss = 1.25",
        "worker=0,epoch=9,global_step=1234567890123456789, local_step=5500, loss = 1.25",
        "2017-10-31 16:00:00.123456: step ten, loss = 2.31 (8123.4 examples/sec; 0.012 sec/batch)",
        # The placement log: the placement of operations is no event.
        "add_1: (Add): /job:localhost/replica:0/task:0/gpu:1",
        "Const: (Const): /job:local/replica:0/task:0/cpu:0",
        "I0000 00:00:1795270995.485245   15586 placer.cc:162] Add: (AddV2): "
        "/job:worker/replica:0/task:0/device:CPU:0",
        # Other lines of TensorFlow, and lines that only mention them.
        "I0000 00:00:1795270972.284139   15586 master.cc:243] Scanning workers for devices: 2 "
        "total workers",
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "Started server with target: grpc://localhost:2222",
        "I said: x.cc:1] Started server with target: grpc://localhost:2222",
        f"I {RPC}grpc_server_lib.cc:316] Started server with target: ",
        f"I {RPC}grpc_server_lib.cc] Started server with target: grpc://localhost:2222",
        f"I {RUNTIME}master.cc:209] CreateSession still waiting for response from worker: ps",
        f"I {RPC}grpc_channel.cc:215] Initialize GrpcChannelCache for job worker -> {{0 -> tf2",
        f"I {RUNTIME}master_session.cc:998] Start master session ",
        'lab kind=event message="Started server with target: x"',
    ],
)
def test_any_other_line_is_none(line: str) -> None:
    assert LogParser().read(line.encode()) is None


HOSTILE = (
    b"worker=" + b"1" * 20_000,
    b"worker" + b" " * 20_000,
    b"worker=0,epoch=9,global_step=1, local_step=1, loss = " + b"1" * 20_000,
    b"worker=0,epoch=9,global_step=1, local_step=1, loss = 1" + b" " * 20_000 + b"x",
    b"worker=0,epoch=9," * 1_200,
    b"After" + b" " * 20_000 + b"1",
    b"After 1 training steps ( 1 global steps), loss on training batch is 1" + b"." * 20_000,
    b"After 1 training steps ( 1 global steps), loss on training batch is" + b" 1" * 10_000,
    b"2017-10-31 16:00:00." + b"1" * 20_000 + b")",
    b"2" * 20_000 + b")",
    b"I" + b" tensorflow/core" * 1_300 + b"] Started server with target: x",
    b"I " + b"a:1" * 6_600 + b"] Started server with target: x",
    b"I x.cc:1] Initialize GrpcChannelCache for job worker -> {" + b"0 -> a, " * 2_500,
    b"I x.cc:1] Start master session " + b"a" * 20_000 + b"!",
    b"I x.cc:1] Started server with target: " + b"x" * 20_000 + b" ",
    b"I" + b"] " * 10_000,
    b" " * 20_000,
    *(b"loss " + unit * 20_000 for unit in (b"loss ", b"step 1 ", b"1,", b"1/", b"loss 1\r")),
    *(b"loss " + unit * 20_000 for unit in (b"\b", b"\x1b[1m", b"a-")),
)


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_no_line_takes_long(line: bytes) -> None:
    """An expression that tried every split of 20,000 bytes would take seconds at the least."""
    parser = LogParser()
    began = time.process_time()
    for _ in range(10):
        parser.read(line[:20_000])
        parser.read(line[:2_000])
    assert time.process_time() - began < 3  # of this process's own CPU time
