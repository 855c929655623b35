"""The NumPy reference of the chapter's trainings."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from benchmarks import chapter_oracle
from lab.protocol.mnist import load_mnist
from lab.study.reproduce.claims import load
from lab.study.reproduce.measures import reference, trainings
from tests import oracle


def test_models_trained_together_equal_single_trainings() -> None:
    mnist = load_mnist()
    batches = list(itertools.islice(oracle.worker_batches(mnist.train, 5, 0), 20))
    stack = chapter_oracle.Stack([1, 2])
    losses = np.array([stack.step(*batch, 0.01) for batch in batches])
    for column, seed in enumerate((1, 2)):
        alone = oracle.train(oracle.initial_parameters("softmax", seed), batches, rate=0.01)
        steps = list(alone)
        assert losses[:, column] == pytest.approx([step.loss for step in steps], rel=1e-4)
        weights = stack.weights[:, 10 * column : 10 * column + 10]
        assert weights == pytest.approx(steps[-1].parameters["weights"], abs=1e-5)


@pytest.mark.parametrize(("variant", "rate"), [("", 0.01), ("rate", 0.0075)])
def test_the_committed_data_is_what_the_script_makes(variant: str, rate: float) -> None:
    """Its first updates, trained again; all three workers train from the first one on."""
    committed = trainings("async", variant)[0]
    mnist = load_mnist()
    streams = [
        oracle.worker_batches(mnist.train, 1000 + committed["order"], index) for index in range(3)
    ]
    stack = chapter_oracle.Stack(committed["seeds"])
    workers = list(itertools.islice(chapter_oracle.turns(27_500), chapter_oracle.EARLY))
    assert set(Counter(workers).values()) == {chapter_oracle.EARLY // 3}
    losses = [stack.step(*next(streams[worker]), rate) for worker in workers]
    assert np.mean(losses, axis=0) == pytest.approx(committed["early_loss"], rel=1e-3)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_a_reference_is_the_mean_over_the_orders(mode: str) -> None:
    of_mode, found = trainings(mode), reference(mode)
    assert len(found) == len(of_mode) == 3
    for row, seed in enumerate(chapter_oracle.INITIALS):
        mean = sum(each["accuracy"][row] for each in of_mode) / 3
        assert found[seed].mean() == pytest.approx(mean)
    means = [sum(each["accuracy"]) / 8 for each in of_mode]
    deviation = float(np.std(means, ddof=1))
    assert found.mean(axis=1).std() == pytest.approx(deviation)
    assert 0 < deviation < 0.001


def test_equally_fast_workers_of_which_one_is_late_make_the_printed_table() -> None:
    """Within 1%: only the moment at which worker 2 joins was chosen."""
    ends: dict[tuple[int, int], int] = {}
    made = [0, 0, 0]
    for total, worker in enumerate(chapter_oracle.turns(27_500, 20_900), start=1):
        made[worker] += 1
        ends[worker, made[worker]] = total
    claims = load("book-async").claims
    rows = [each for each in claims if each.id.startswith(("global-step.", "last-steps."))]
    assert len(rows) == 15
    for claim in rows:
        simulated = ends[claim.keys["worker"], claim.keys["local_step"]]
        assert simulated == pytest.approx(claim.value, rel=0.01)


def test_three_epochs_are_few_for_the_rate_and_the_initial_weights() -> None:
    """README's reason for an accuracy of about 0.74: three epochs of three workers."""
    mnist = load_mnist()

    def reached(updates: int, rate: float, scale: float = 1.0) -> list[float]:
        stack = chapter_oracle.Stack([1, 2, 3] if scale else [1])
        stack.weights *= np.float32(scale)
        stack.biases *= np.float32(scale)
        streams = [oracle.worker_batches(mnist.train, 1000, index) for index in range(3)]
        for batch in itertools.islice(oracle.in_turn(streams), updates):
            stack.step(*batch, rate)
        return stack.accuracies(mnist.test)

    small, large = reached(4950, 0.01), reached(495, 0.1)
    for found in (small, large):
        assert (f"{min(found):.2f}", f"{max(found):.2f}") == ("0.73", "0.76")
    assert large == pytest.approx(small, abs=0.002)
    assert f"{reached(4950, 0.01, scale=0)[0]:.2f}" == "0.90"
