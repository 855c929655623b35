"""The ledger of the queue: no GPU has two owners, no request starves, a crash changes nothing."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lab.base.errors import InputError
from lab.teach.classroom.planning import ClassPlan
from lab.teach.classroom.protocol import Order, State
from lab.teach.classroom.queue.ledger import Entry, Ledger
from tests.support.classes import granting

SLICE_S = 60.0
GPUS = tuple(f"GPU-{index}" for index in range(4))
CAPACITY = granting(GPUS, "abcdyz", SLICE_S)
ONLY_CPUS = granting((), "y", SLICE_S)
Make = Callable[..., Ledger]


def entry(seat: str, needs: int, name: str = "mnist") -> Entry:
    paths = {"folder": "/", "directory": "/"}
    order = Order(id=name, config="", with_gpus=True, runtime="", **paths)
    return Entry(order=order, seat=seat, name=name, project=f"p-{seat}", needs=needs)


@pytest.fixture
def ledger_of(tmp_path: Path) -> Make:
    """Makes a ledger in which seats wait for numbers of GPUs."""

    def make(plan: ClassPlan = CAPACITY, **needs: int) -> Ledger:
        ledger = Ledger(tmp_path / "ledger.json", plan)
        for seat, count in needs.items():
            ledger.add(entry(seat, count))
        return ledger

    return make


def end(ledger: Ledger, seat: str) -> None:
    ledger.enter(seat, State.ENDED, 0.0, gpus=(), network="")


def late(ledger: Ledger, now: float) -> list[str]:
    return [each.seat for each in ledger.overdue(now)]


def test_environments_without_gpus_wait_in_a_line_of_their_own(ledger_of: Make) -> None:
    ledger = ledger_of(ada=4, bob=4, c=0, d=0, e=0)
    ledger.grant(0.0)
    assert [each.network for each in ledger.entries.values()] == ["a", "", "y", "z", ""]
    assert ledger.positions() == {"bob": 1, "e": 1}


def test_what_the_queue_never_has_is_refused(ledger_of: Make) -> None:
    with pytest.raises(InputError, match="needs 5 GPUs, but the queue has 4"):
        ledger_of().add(entry("eve", 5))
    only_gpus = granting(GPUS, "abcd", SLICE_S)
    with pytest.raises(InputError, match=r"only for GPUs; run it in this .* `cpu_runs` in class"):
        ledger_of(only_gpus).add(entry("eve", 0))
    ledger = ledger_of(ONLY_CPUS)
    ledger.remove("ada")
    with pytest.raises(
        InputError, match=r"needs 1 GPU, but the queue has none; .*`--backend local`"
    ):
        ledger.add(entry("eve", 1))
    ledger.add(entry("eve", 0))
    ledger.grant(0.0)
    (one,) = ledger.entries.values()
    assert (one.state, one.gpus, one.network) == (State.GRANTED, (), "y")


@pytest.mark.parametrize("needs", [4, 0])
def test_a_turn_ends_if_others_wait_for_its_place(needs: int, ledger_of: Make) -> None:
    ledger = ledger_of(granting(GPUS, "abcdy", SLICE_S), ada=needs)
    ledger.grant(100.0)
    assert ledger.entries["ada"].since_unix == 100.0
    ledger.enter("ada", State.UP, 130.0)
    end_unix = 130.0 + SLICE_S
    assert late(ledger, 10 * end_unix) == []
    ledger.add(entry("eve", 0 if needs else 1))  # in the other line
    assert late(ledger, 10 * end_unix) == []
    ledger.add(entry("bob", needs))
    assert late(ledger, end_unix - 1) == []
    assert late(ledger, end_unix) == ["ada"]


def test_no_more_turns_end_than_the_first_one_needs(ledger_of: Make) -> None:
    ledger = ledger_of(ada=1, bob=1, eve=1, dan=1)
    ledger.grant(0.0)
    for moment, seat in enumerate(("ada", "bob", "eve", "dan")):
        ledger.enter(seat, State.UP, float(-moment))
    ledger.add(entry("kim", 2))
    assert late(ledger, SLICE_S) == ["dan", "eve"]
    ledger.enter("dan", State.ENDING, SLICE_S)
    assert late(ledger, SLICE_S) == ["eve"]


class Crash(Exception):  # noqa: N818
    """The service is killed."""


class CrashingLedger(Ledger):
    """A ledger that can crash at its next write."""

    crashes = False

    def _write(self, entries: dict[str, Entry]) -> None:
        if self.crashes:
            raise Crash
        super()._write(entries)


class Queueing(RuleBasedStateMachine):
    """Seats come and go, turns end, and the service may be killed at any write."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.json"
        self.ledger = CrashingLedger(self.path, CAPACITY)
        self.now = 0.0
        self.numbers = itertools.count()
        # What exists on the host: only what the ledger had on the disk before may use GPUs.
        self.running: dict[str, tuple[str, ...]] = {}
        self.order: list[tuple[str, bool]] = []
        self.begun: list[str] = []

    def teardown(self) -> None:
        self.drain()
        self.folder.cleanup()

    @contextmanager
    def service(self) -> Iterator[None]:
        """A service that may be killed: the next one knows only the disk."""
        try:
            yield
        except Crash:
            self.ledger = CrashingLedger(self.path, CAPACITY)

    def advance(self) -> None:
        """What the service does: first the ledger, then the containers."""
        self.ledger.grant(self.now)
        for each in self.ledger.overdue(self.now):
            self.ledger.enter(each.seat, State.ENDING, self.now)
        for each in self.ledger.entries.values():
            if each.state is State.GRANTED and each.order.id not in self.running:
                self.running[each.order.id] = each.gpus
                self.begun.append(each.order.id)

    @rule()
    def kill_at_the_next_write(self) -> None:
        self.ledger.crashes = True

    @rule(
        orders=st.lists(
            st.tuples(st.sampled_from("abcdef"), st.integers(0, 5)), min_size=1, max_size=6
        )
    )
    def requests(self, orders: list[tuple[str, int]]) -> None:
        for seat, needs in orders:
            id_ = str(next(self.numbers))
            with self.service(), suppress(InputError):
                self.ledger.add(entry(seat, needs, id_))
                self.order.append((id_, bool(needs)))
        self.step()

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.step()

    def step(self) -> None:
        with self.service():
            self.advance()

    @rule(data=st.data())
    @precondition(lambda self: self.ledger.entries)
    def an_environment_changes(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(list(self.ledger.entries.values())))
        following = {State.GRANTED: State.UP, State.UP: State.ENDING}
        with self.service():
            if one.state is State.ENDING:
                self.finish(one)
            elif state := following.get(one.state):
                self.ledger.enter(one.seat, state, self.now)
            else:  # its seat gives the place back, or has seen its end
                self.ledger.remove(one.seat)

    def finish(self, one: Entry) -> None:
        """First the containers are gone, then the ledger says so."""
        self.running.pop(one.order.id, None)
        end(self.ledger, one.seat)

    def drain(self) -> None:
        """Everybody who waits gets a turn: after the turns before, and no later."""
        self.ledger.crashes = False
        rounds = 0
        while self.in_state(State.WAITING):
            rounds += 1
            assert rounds <= 20
            for each in self.in_state(State.GRANTED):
                self.ledger.enter(each.seat, State.UP, self.now)
            self.now += SLICE_S
            self.advance()
            for each in self.in_state(State.ENDING):
                self.finish(each)
            self.advance()
            self.no_gpu_has_two_owners()
            self.no_request_passes_another()

    def in_state(self, state: State) -> list[Entry]:
        return [each for each in self.ledger.entries.values() if each.state is state]

    @invariant()
    def no_gpu_has_two_owners(self) -> None:
        for owners in (
            Counter(gpu for each in self.ledger.entries.values() for gpu in each.gpus),
            Counter(gpu for gpus in self.running.values() for gpu in gpus),
            Counter(each.network for each in self.ledger.entries.values() if each.network),
        ):
            assert set(owners.values()) <= {1}
        assert {gpu for each in self.ledger.entries.values() for gpu in each.gpus} <= set(GPUS)

    @invariant()
    def what_runs_is_in_the_ledger_on_the_disk(self) -> None:
        on_disk = Ledger(self.path, CAPACITY).entries
        known = {each.order.id: each.gpus for each in on_disk.values()}
        assert all(known.get(id_) == gpus for id_, gpus in self.running.items())
        assert list(on_disk.items()) == list(self.ledger.entries.items())

    @invariant()
    def no_request_passes_another(self) -> None:
        for with_gpus in (True, False):
            place = {id_: n for n, (id_, gpus) in enumerate(self.order) if gpus is with_gpus}
            turns = [place[id_] for id_ in self.begun if id_ in place]
            assert turns == sorted(turns)

    @invariant()
    def each_one_who_waits_has_a_place(self) -> None:
        waiting = {each.seat for each in self.in_state(State.WAITING)}
        assert set(self.ledger.positions()) == waiting


TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
