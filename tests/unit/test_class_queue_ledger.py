"""The ledger of the queue: no GPU has two owners, no request starves, a crash changes nothing."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lab.backends.classroom.protocol import Order, State
from lab.classroom.queue.ledger import (
    START_S,
    Capacity,
    Entries,
    Entry,
    Ledger,
    added,
    changed,
    granted,
    overdue,
    removed,
    waits,
)
from lab.errors import InputError

SLICE_S = 60.0
GPUS = tuple(f"GPU-{index}" for index in range(4))
CAPACITY = Capacity(GPUS, ("a", "b", "c", "d"), ("y", "z"), SLICE_S)


def entry(seat: str, needs: int, name: str = "mnist") -> Entry:
    paths = {"folder": "/", "directory": "/"}
    order = Order(id=name, config="", with_gpus=True, tensorflow="", **paths)
    return Entry(order=order, seat=seat, name=name, project=f"p-{seat}", needs=needs)


def line(**needs: int) -> Entries:
    return tuple(entry(seat, count) for seat, count in needs.items())


def end(entries: Entries, seat: str) -> Entries:
    return changed(entries, seat, state=State.ENDED, gpus=(), network="")


def test_gpus_are_granted_in_the_order_of_the_requests() -> None:
    entries = granted(line(ada=2, bob=1, eve=2, kim=1), CAPACITY, 0.0)
    # A large request at the head is not passed.
    assert [each.gpus for each in entries] == [GPUS[:2], GPUS[2:3], (), ()]
    assert [each.network for each in entries] == ["a", "b", "", ""]
    entries = granted(end(entries, "ada"), CAPACITY, 5.0)
    assert [each.gpus for each in entries[2:]] == [("GPU-0", "GPU-1"), ("GPU-3",)]
    assert entries[2].granted_unix == 5.0


def test_environments_without_gpus_wait_in_a_line_of_their_own() -> None:
    entries = granted(line(ada=4, bob=4, c=0, d=0, e=0), CAPACITY, 0.0)
    assert [each.network for each in entries] == ["a", "", "y", "z", ""]
    places = waits(entries, CAPACITY, 0.0)
    assert {seat: wait.position for seat, wait in places.items()} == {"bob": 1, "e": 1}


def test_what_the_queue_never_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"has the environment 'mnist' in the queue already"):
        added(line(ada=1), entry("ada", 1, "other"), CAPACITY)
    with pytest.raises(InputError, match="needs 5 GPUs, and the queue has 4"):
        added((), entry("ada", 5), CAPACITY)
    with pytest.raises(InputError, match=r"only for GPUs; run it in this .* `cpu_runs` in class"):
        added((), entry("ada", 0), Capacity(GPUS, ("a",), (), SLICE_S))
    only_cpus = Capacity((), (), ("y",), SLICE_S)
    with pytest.raises(InputError, match=r"needs 1 GPU, and the queue has none; .*`--gpus none`"):
        added((), entry("ada", 1), only_cpus)
    (one,) = granted(added((), entry("ada", 0), only_cpus), only_cpus, 0.0)
    assert (one.state, one.gpus, one.network) == (State.GRANTED, (), "y")


def test_a_new_environment_replaces_the_ended_one_of_its_seat() -> None:
    entries = end(line(ada=1, bob=1), "ada")
    entries = added(entries, entry("ada", 2, "other"), CAPACITY)
    assert [(each.seat, each.name) for each in entries] == [("bob", "mnist"), ("ada", "other")]


@pytest.mark.parametrize(
    ("needs", "capacity"), [(4, CAPACITY), (0, Capacity((), (), ("y",), SLICE_S))]
)
def test_a_turn_ends_if_others_wait_for_its_place(needs: int, capacity: Capacity) -> None:
    entries = granted(line(ada=needs), capacity, 100.0)
    entries = changed(entries, "ada", state=State.UP, up_unix=130.0)
    end_unix = 130.0 + SLICE_S
    assert overdue(entries, capacity, 10 * end_unix) == []
    elsewhere = added(entries, entry("eve", 0 if needs else 1), CAPACITY)
    assert overdue(elsewhere, capacity, 10 * end_unix) == []
    entries = added(entries, entry("bob", needs), capacity)
    assert overdue(entries, capacity, end_unix - 1) == []
    assert [each.seat for each in overdue(entries, capacity, end_unix)] == ["ada"]
    assert waits(entries, capacity, end_unix - 7)["bob"].seconds == 7


def test_no_more_turns_end_than_the_first_one_needs() -> None:
    entries = granted(line(ada=1, bob=1, eve=1, dan=1), CAPACITY, 0.0)
    for moment, seat in enumerate(("ada", "bob", "eve", "dan")):
        fields = {"state": State.UP, "granted_unix": float(-moment)}
        entries = changed(entries, seat, **fields)
    entries = added(entries, entry("kim", 2), CAPACITY)
    late = START_S + SLICE_S
    assert [each.seat for each in overdue(entries, CAPACITY, late)] == ["dan", "eve"]
    entries = changed(entries, "dan", state=State.ENDING)
    assert [each.seat for each in overdue(entries, CAPACITY, late)] == ["eve"]


def test_the_estimate_is_the_sum_of_the_turns_before() -> None:
    entries = granted(line(ada=4, bob=2, eve=2, kim=3), CAPACITY, 0.0)
    found = waits(entries, CAPACITY, START_S + 20.0)
    assert [(wait.position, wait.seconds) for wait in found.values()] == [
        (1, 40.0),
        (2, 40.0),
        (3, 100.0),
    ]
    # Somebody is late, so the first one may begin at any moment.
    assert waits(entries, CAPACITY, 500.0)["bob"].seconds == 0.0


class Crash(Exception):  # noqa: N818
    """The service is killed."""


class Queueing(RuleBasedStateMachine):
    """Seats come and go, turns end, and the service may be killed at any write."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "ledger.json"
        self.ledger = Ledger(self.path)
        self.now = 0.0
        self.numbers = itertools.count()
        self.crashes = False
        # What exists on the host: only what the ledger had on the disk before may use GPUs.
        self.running: dict[str, tuple[str, ...]] = {}
        self.order: list[tuple[str, bool]] = []
        self.begun: list[str] = []

    def teardown(self) -> None:
        self.drain()
        self.folder.cleanup()

    def write(self, entries: Entries) -> None:
        if self.crashes:
            self.crashes = False
            self.ledger = Ledger(self.path)  # the next service knows only the disk
            raise Crash
        self.ledger.write(entries)

    def advance(self) -> None:
        """What the service does: first the ledger, then the containers."""
        entries = granted(self.ledger.entries, CAPACITY, self.now)
        for each in overdue(entries, CAPACITY, self.now):
            entries = changed(entries, each.seat, state=State.ENDING)
        self.write(entries)
        for each in self.ledger.entries:
            if each.state is State.GRANTED and each.order.id not in self.running:
                self.running[each.order.id] = each.gpus
                self.begun.append(each.order.id)

    @rule()
    def kill_at_the_next_write(self) -> None:
        self.crashes = True

    @rule(
        orders=st.lists(
            st.tuples(st.sampled_from("abcdef"), st.integers(0, 5)), min_size=1, max_size=6
        )
    )
    def requests(self, orders: list[tuple[str, int]]) -> None:
        for seat, needs in orders:
            id_ = str(next(self.numbers))
            new = entry(seat, needs, id_)
            try:
                self.write(added(self.ledger.entries, new, CAPACITY))
            except (InputError, Crash):
                continue
            self.order.append((id_, bool(needs)))
        self.step()

    @rule(seconds=st.sampled_from([1.0, 30.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.step()

    def step(self) -> None:
        with suppress(Crash):
            self.advance()

    @rule(data=st.data())
    @precondition(lambda self: self.ledger.entries)
    def an_environment_changes(self, data: st.DataObject) -> None:
        one = data.draw(st.sampled_from(self.ledger.entries))
        following = {State.GRANTED: State.UP, State.UP: State.ENDING}
        with suppress(Crash):
            if one.state is State.ENDING:
                self.finish(one)
            elif state := following.get(one.state):
                self.write(changed(self.ledger.entries, one.seat, state=state))
            else:  # its seat gives the place back, or has seen its end
                self.write(removed(self.ledger.entries, one.seat))

    def finish(self, one: Entry) -> None:
        """First the containers are gone, then the ledger says so."""
        self.running.pop(one.order.id, None)
        self.write(end(self.ledger.entries, one.seat))

    def drain(self) -> None:
        """Everybody who waits gets a turn: after the turns before, and no later."""
        self.crashes = False
        rounds = 0
        while any(each.state is State.WAITING for each in self.ledger.entries):
            rounds += 1
            assert rounds <= 20
            self.now += START_S + SLICE_S
            for each in self.ledger.entries:
                if each.state is State.GRANTED:
                    self.ledger.write(changed(self.ledger.entries, each.seat, state=State.UP))
            self.advance()
            for each in self.ledger.entries:
                if each.state is State.ENDING:
                    self.finish(each)
            self.advance()
            self.no_gpu_has_two_owners()
            self.no_request_passes_another()

    @invariant()
    def no_gpu_has_two_owners(self) -> None:
        for owners in (
            Counter(gpu for each in self.ledger.entries for gpu in each.gpus),
            Counter(gpu for gpus in self.running.values() for gpu in gpus),
            Counter(each.network for each in self.ledger.entries if each.network),
        ):
            assert set(owners.values()) <= {1}
        assert {gpu for each in self.ledger.entries for gpu in each.gpus} <= set(GPUS)

    @invariant()
    def what_runs_is_in_the_ledger_on_the_disk(self) -> None:
        known = {each.order.id: each.gpus for each in Ledger(self.path).entries}
        assert all(known.get(id_) == gpus for id_, gpus in self.running.items())
        assert Ledger(self.path).entries == self.ledger.entries

    @invariant()
    def a_seat_has_one_place(self) -> None:
        assert set(Counter(each.seat for each in self.ledger.entries).values()) <= {1}

    @invariant()
    def no_request_passes_another(self) -> None:
        for with_gpus in (True, False):
            place = {id_: n for n, (id_, gpus) in enumerate(self.order) if gpus is with_gpus}
            turns = [place[id_] for id_ in self.begun if id_ in place]
            assert turns == sorted(turns)

    @invariant()
    def each_one_who_waits_has_a_place(self) -> None:
        found = waits(self.ledger.entries, CAPACITY, self.now)
        waiting = [each.seat for each in self.ledger.entries if each.state is State.WAITING]
        assert set(found) == set(waiting)
        assert all(wait.seconds >= 0 for wait in found.values())


TestQueueing = Queueing.TestCase
TestQueueing.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
