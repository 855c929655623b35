"""Faults as text: valid faults, targets, due times, and messages to agents."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from lab.protocol.experiments.faults import (
    Fault,
    Kind,
    Trigger,
    check_target,
    concerns,
    due,
    parse,
    parse_all,
    relative_to_now,
)
from lab.protocol.volume import Request, RunSpec, Volume, control
from lab.protocol.volume.control import NoSuchRun, submit

PLACES = {"ps-0": "tf1", "worker-0": "tf1", "worker-1": "tf2"}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("kill worker-1", Fault(Kind.KILL, "worker-1")),
        ("kill worker-1 at start", Fault(Kind.KILL, "worker-1", Trigger(seconds=0))),
        ("stop tf2 after 5s", Fault(Kind.STOP, "tf2", Trigger(seconds=5))),
        ("pause:1m30s ps-0", Fault(Kind.PAUSE, "ps-0", seconds=90)),
        (
            "pause:10s worker-1 after 20,900 steps",
            Fault(Kind.PAUSE, "worker-1", Trigger(steps=20_900), seconds=10),
        ),
        ("slow:0.3 worker-1", Fault(Kind.SLOW, "worker-1", seconds=3600, share=0.3)),
        ("slow:.25,7s worker-1", Fault(Kind.SLOW, "worker-1", seconds=7, share=0.25)),
        ("cut:5s tf2", Fault(Kind.CUT, "tf2", seconds=5)),
        (
            "link:rate=10mbit,delay=20ms,4s tf2",
            Fault(Kind.LINK, "tf2", seconds=4, rate_bits=10**7, delay_us=20_000),
        ),
        ("link:delay=1.5s tf2", Fault(Kind.LINK, "tf2", seconds=30, delay_us=1_500_000)),
        ("link:5s,rate=1.001kbit tf2", Fault(Kind.LINK, "tf2", seconds=5, rate_bits=1001)),
        ("  kill   worker-1  after 2m ", Fault(Kind.KILL, "worker-1", Trigger(seconds=120))),
    ],
)
def test_valid_faults(text: str, fault: Fault) -> None:
    assert parse(text) == fault
    assert parse(fault.text) == fault


INVALID = [
    "", "kil worker-1", "kill", "kill: worker-1", "kill:9 worker-1", "kill WORKER",
    # Durations.
    "pause worker-1", "cut:5s,6s tf2", "pause:ten worker-1", "pause:0s worker-1",
    "pause:0.0001s worker-1", "pause:2h worker-1",
    # Shares.
    "slow worker-1", "slow:0.3,1s,2s worker-1", "slow:1 worker-1", "slow:0.000 worker-1",
    "slow:nan worker-1",
    # Links.
    "link tf2", "link:5s tf2", "link:rate=1mbit,5s,6s tf2", "link:rat=1mbit tf2",
    "link:rate=1mbit,rate=2mbit tf2", "link:rate=10 tf2", "link:rate=0mbit tf2",
    "link:rate=2000gbit tf2", "link:delay=2h tf2",
    # Moments.
    "kill worker-1 now", "kill worker-1 after", "kill worker-1 after 5 stepz",
    "kill worker-1 at random", "kill worker-1 after 5s seed 42",
]  # fmt: skip


@pytest.mark.parametrize("text", INVALID)
def test_invalid_faults(text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert str(caught.value) == snapshot


def test_several_faults() -> None:
    kill, cut = parse_all("kill worker-1; cut:5s tf2;")
    assert (kill.text, cut.text) == ("kill worker-1", "cut:5s tf2")
    with pytest.raises(ValueError, match="a fault is missing"):
        parse_all(" ; ")


TIMES = st.integers(1, 36_000).map(lambda tenths: tenths / 10)
WHEN = st.one_of(
    st.none(),
    st.builds(Trigger, seconds=st.one_of(st.just(0.0), TIMES)),
    st.builds(Trigger, steps=st.integers(0, 10**9)),
)
FAULTS = st.one_of(
    st.builds(Fault, st.sampled_from([Kind.KILL, Kind.STOP]), st.just("tf2"), WHEN),
    st.builds(Fault, st.sampled_from([Kind.PAUSE, Kind.CUT]), st.just("ps-0"), WHEN, seconds=TIMES),
    st.builds(
        Fault,
        st.just(Kind.SLOW),
        st.just("tf2"),
        seconds=TIMES,
        share=st.integers(1, 999).map(lambda n: n / 1000),
    ),
    st.builds(
        Fault,
        st.just(Kind.LINK),
        st.just("tf2"),
        WHEN,
        seconds=TIMES,
        rate_bits=st.integers(1, 10**9),
        delay_us=st.one_of(st.none(), st.integers(1, 6 * 10**7)),
    ),
)


@given(FAULTS)
def test_a_fault_is_read_back_from_its_text(fault: Fault) -> None:
    assert parse(fault.text) == fault


def test_network_faults_name_a_node() -> None:
    assert check_target(parse("cut:5s worker-1"), PLACES).target == "tf2"
    assert check_target(parse("pause:5s worker-1"), PLACES).target == "worker-1"
    assert check_target(parse("pause:5s tf1"), PLACES).target == "tf1"
    with pytest.raises(
        ValueError, match=r"no task or node 'worker-7'; did you mean 'worker-1"
    ) as caught:
        check_target(parse("kill worker-7"), PLACES)
    assert str(caught.value).endswith("there are ps-0, worker-0, worker-1 on tf1, tf2")


def test_target_of_a_fault() -> None:
    acts = [("kill tf1", "worker-0"), ("kill worker-0", "worker-0")]
    others = [("kill worker-0", "ps-0"), ("kill tf2", "ps-0")]
    assert all(concerns(parse(text), task, "tf1") for text, task in acts)
    assert not any(concerns(parse(text), task, "tf1") for text, task in others)


def test_when_a_fault_is_due() -> None:
    timed, counted = parse("kill worker-1 after 5s"), parse("kill worker-1 after 500 steps")
    unnamed, first = parse("kill worker-1"), parse("kill worker-1 at start")
    assert [due(unnamed, 99.0, 7, trains=trains) for trains in (False, True)] == [False, True]
    assert due(first, 0.0, None, trains=False)
    assert [due(timed, elapsed, None, trains=True) for elapsed in (4.9, 5.0)] == [False, True]
    assert [due(counted, 99.0, step, trains=True) for step in (None, 499, 500)] == [
        *(False, False, True)
    ]


def test_seconds_of_a_fault_can_count_from_now() -> None:
    for text, of_the_run in (
        ("kill worker-1", "kill worker-1 after 7.3s"),
        ("kill worker-1 after 5s", "kill worker-1 after 12.3s"),
        ("kill worker-1 after 500 steps", "kill worker-1 after 500 steps"),
    ):
        assert relative_to_now(parse(text), 7.26).text == of_the_run


@pytest.fixture
def volume(tmp_path: Path) -> Volume:
    made = Volume(tmp_path)
    submit(made, Request("r1", RunSpec("t", "p.py"), {"worker": ["tf1:1"]}))
    return made


def test_faults_are_sent_in_order(volume: Volume) -> None:
    for seconds in range(12):
        control.inject_fault(volume, "r1", f"pause:{seconds + 1}s worker-0")
    told = control.injected_faults(volume.faults("r1"))
    assert list(told) == list(range(12))
    assert [control.read_fault(path).seconds for path in told.values()] == list(range(1, 13))
    assert [path.name for path in volume.faults("r1").iterdir() if path.name.startswith(".")] == []


def test_concurrent_senders_do_not_overwrite(volume: Volume) -> None:
    texts = [f"{kind} worker-0" for kind in ("kill", "stop") for _ in range(4)]
    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(lambda text: control.inject_fault(volume, "r1", text), texts))
    sent = control.injected_faults(volume.faults("r1")).values()
    assert sorted(control.read_fault(path).text for path in sent) == sorted(texts)


def test_faults_not_sent(volume: Volume) -> None:
    with pytest.raises(NoSuchRun):
        control.inject_fault(volume, "r2", "kill worker-0")
    with pytest.raises(ValueError, match="no fault 'hurt'"):
        control.inject_fault(volume, "r1", "hurt worker-0")
    assert not volume.faults("r1").exists()


@pytest.mark.parametrize("text", ["", "[]", "{}", '"kill worker-0"'])
def test_a_file_without_a_fault(tmp_path: Path, text: str) -> None:
    path = tmp_path / "3.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"does not contain a fault|Expecting value"):
        control.read_fault(path)
    with pytest.raises(ValueError, match=r"4.json does not contain a fault"):
        control.read_fault(tmp_path / "4.json")
