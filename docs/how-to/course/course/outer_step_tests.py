"""Tests of `outer_step.py`; the ranks are threads. By hand: `python course/outer_step_tests.py`.

A model here has two parameters of different shapes, and is no network: a test sets their values.
"""

import unittest
from unittest import mock

import numpy as np
import ranks
import torch
from outer_step import OuterOptimizer
from torch.nn.utils import parameters_to_vector

RATE, MOMENTUM = 0.7, 0.9
OTHERS = ((0.5, MOMENTUM), (RATE, 0.8), (RATE, 0.0))
STEPS = [[1.0, -2.0, 0.5, 0.0, 3.0]] * 2 + [[-1.0, 0.0, 0.0, 2.0, 1.0]] * 4


def model(*values):
    """Parameters of the shapes [2, 2] and [1], with five values."""
    numbers = torch.tensor(values or (1.0, 2.0, 3.0, 4.0, 5.0))
    return [torch.nn.Parameter(part) for part in (numbers[:4].reshape(2, 2), numbers[4:].clone())]


def train(parameters, change):
    """Add a change to each value, as an inner optimizer does: in place."""
    with torch.no_grad():
        for parameter in parameters:
            parameter.add_(change)


def optimizer(parameters, group=None, rate=RATE, momentum=MOMENTUM):
    return OuterOptimizer(parameters, rate, momentum, group)


def on(n):
    return "On one rank" if n == 1 else f"On {n} ranks"


def shown(values):
    """The values as a hint prints them."""
    return [float(f"{value:.4g}") for value in values.tolist()]


class OuterStepTest(unittest.TestCase):
    """One test for each gap, in their order."""

    longMessage = False  # the hint alone

    def setUp(self):
        """Refuse the process group of `torch.distributed`: the ranks here are threads."""
        refused = mock.Mock(
            side_effect=AssertionError(
                "outer_step.py asks `torch.distributed` directly, where nothing counts what is"
                " exchanged. Use `self.group`."
            )
        )
        self.enterContext(
            mock.patch.multiple(torch.distributed, all_reduce=refused, get_world_size=refused)
        )

    def test_1_gradient(self):
        parameters = model()
        outer = optimizer(parameters)
        train(parameters, 0.5)
        gradient = outer.gradient()
        self.assertTrue(
            isinstance(gradient, torch.Tensor) and gradient.shape == (5,),
            f"The model has 5 values in two parameters, so `gradient` is a vector of 5. Yours is a"
            f" {type(gradient).__name__}. What makes one vector of all parameters?",
        )
        self.assertFalse(
            gradient.requires_grad,
            "`gradient` still has the graph of the parameters, and each exchange would make it"
            " longer. Detach it.",
        )
        self.assertFalse(
            torch.equal(gradient, torch.full((5,), 0.5)),
            "All values have grown by 0.5, and `gradient` is 0.5. SGD subtracts a gradient: with"
            " yours, the outer step goes back to where the rank came from.",
        )
        self._check_close(
            gradient, torch.full((5,), -0.5), "All values have grown by 0.5. `gradient`"
        )

    def test_2_mean(self):
        own = torch.tensor([1.0, 2.0, 3.0])

        def call(group):
            return optimizer(model(), group).mean(own * 10**group.rank)

        for n in (3, 4, 2, 1):
            means, exchanged = ranks.run(n, call)
            total = own * sum(10**rank for rank in range(n))
            for rank, mean in enumerate(means):
                what = f"{on(n)}, `mean` of rank {rank}"
                self.assertIsInstance(
                    mean,
                    torch.Tensor,
                    f"{what} returns a {type(mean).__name__} instead of a vector. `all_reduce`"
                    " changes its tensor and returns nothing.",
                )
                if n > 1:
                    self.assertFalse(
                        torch.equal(mean, own * 10**rank / n),
                        f"{what} has nothing from the other ranks. Who adds up the vectors of all?",
                    )
                    self.assertFalse(
                        torch.equal(mean, total),
                        f"{what} is the sum of all: with more ranks, the steps would be longer."
                        " What is missing?",
                    )
                self._check_close(mean, total / n, what)
            self._check_exchanges(exchanged, own.nbytes, "each call of `mean`")

    def _check_exchanges(self, exchanged, wanted, when):
        """Check the bytes that each rank gave to `all_reduce`; one rank alone needs none."""
        n = len(exchanged)
        self.assertTrue(
            n == 1 or exchanged == [wanted] * n,
            f"{on(n)}, one exchange of the vector in {when} makes {wanted} bytes for each rank."
            f" Yours passed {exchanged} bytes to `all_reduce`.",
        )

    def test_3_move(self):
        """The steps of `torch.optim.SGD`, with more than one rate and momentum."""
        self._check_moves()
        for rate, momentum in OTHERS:
            for reference, wanted, _ in self._moves(rate, momentum):
                self.assertTrue(
                    torch.allclose(reference, wanted, atol=1e-5),
                    f"`move` is right with the rate {RATE} and the momentum {MOMENTUM}, but not"
                    f" with the rate {rate} and the momentum {momentum}. Where does it get these"
                    " two numbers from?",
                )

    @staticmethod
    def _moves(rate, momentum):
        """Yield `reference`, what it must be, and whether two tensors became one; by steps."""
        outer = optimizer(model(), rate=rate, momentum=momentum)
        parameter = torch.nn.Parameter(outer.reference.clone())
        sgd = torch.optim.SGD([parameter], lr=rate, momentum=momentum, nesterov=momentum > 0)
        shared = False
        for gradient in torch.tensor(STEPS):
            parameter.grad = gradient.clone()
            sgd.step()
            passed = gradient.clone()
            outer.move(passed)
            shared |= outer.velocity is passed and not torch.equal(passed, gradient)
            yield outer.reference.clone(), parameter.detach().clone(), shared

    def _check_moves(self):
        """Check each step with the default rate and momentum."""
        before = parameters_to_vector(model()).detach()
        moves = zip(STEPS, self._moves(RATE, MOMENTUM), strict=True)
        for number, (gradient, (reference, wanted, shared)) in enumerate(moves, 1):
            steps = (before - reference) / RATE
            before = reference
            if number == 1:
                self._check_first_move(steps, torch.tensor(gradient))
            self.assertFalse(
                number == 2 and torch.allclose(steps, (1 + MOMENTUM) * torch.tensor(gradient)),
                "The same gradient twice, and the second step is as long as the first. What does"
                " the momentum remember from one step to the next?",
            )
            right = torch.allclose(reference, wanted, atol=1e-5)
            self.assertFalse(
                shared and not right,
                f"Step {number} of `move` is wrong: `self.velocity` and the gradient were the same"
                " tensor, so changing one in place changed the other, too.",
            )
            self._check_close(
                reference,
                wanted,
                f"After step {number} of `move`, with the gradient {gradient}, `reference`",
                "Compare with the formulas of `torch.optim.SGD`, one by one.",
            )

    def _check_first_move(self, moved, gradient):
        """Check the first step, as a multiple of the rate."""
        self.assertFalse(
            torch.equal(moved, torch.zeros(5)),
            "`reference` is the same after `move`. Did you change a copy?",
        )
        self.assertFalse(
            torch.allclose(moved, -(1 + MOMENTUM) * gradient),
            "`move` goes along the gradient, and not against it.",
        )
        self.assertFalse(
            torch.allclose(moved, gradient, atol=1e-5),
            "The first step is the rate times the gradient, as without Nesterov's momentum, which"
            " looks ahead: what does it add to the gradient before the step?",
        )
        self.assertFalse(
            torch.allclose(moved, MOMENTUM * gradient, atol=1e-5),
            "The step has the velocity, but where is the gradient itself?",
        )
        self.assertFalse(
            torch.allclose(moved, (1 + MOMENTUM * (1 - MOMENTUM)) * gradient, atol=1e-5),
            "The first step is too short: the velocity has only a part of the gradient, as in a"
            " moving average. Which argument of `torch.optim.SGD` does that, and what is it here?",
        )

    def test_4_put_back(self):
        parameters = model()
        outer = optimizer(parameters)
        outer.reference = torch.arange(10.0, 15.0)
        outer.put_back()
        self.assertEqual(
            [tuple(each.shape) for each in parameters],
            [(2, 2), (1,)],
            "`put_back` has changed the shapes of the parameters.",
        )
        for at, (old, new) in enumerate(zip(model(), parameters, strict=True)):
            self.assertFalse(
                torch.equal(old, new),
                f"After `put_back`, parameter {at} of the model still has its old values. Did you"
                " create a new tensor? The model and the inner optimizer don't know it.",
            )
        self._check_close(
            parameters_to_vector(parameters).detach(),
            torch.arange(10.0, 15.0),
            "After `put_back`, the model",
            "At which value of `reference` does the second parameter begin?",
        )
        train(parameters, 1.0)
        self.assertTrue(
            torch.equal(outer.reference, torch.arange(10.0, 15.0)),
            "The rank trains on after `put_back`, and `reference` changes with it: they share"
            " memory. Then there is never a change since the last exchange.",
        )

    def test_5_step(self):
        for n in (3, 2, 1):
            results, exchanged = ranks.run(n, self._train)
            trained, changed = zip(*results, strict=True)
            self.assertTrue(
                any(changed),
                "The model's parameters are the same before and after `step`. Which method gives"
                " them new values?",
            )
            for rank in range(n):
                self.assertTrue(
                    torch.equal(trained[rank], trained[0]),
                    f"{on(n)}, rank {rank} has {shown(trained[rank])} after `step`, and rank 0 has"
                    f" {shown(trained[0])}. What must all ranks agree on before they move?",
                )
            self._check_exchanges(exchanged, 3 * trained[0].nbytes, "each of three calls of `step`")
            self._check_close(
                trained[0],
                torch.from_numpy(self._by_numpy(n)),
                f"{on(n)}, after three rounds of training and `step`, the model",
                "Work out one round on paper: what goes into each method, and what comes out?",
            )

    @staticmethod
    def _changes(rank):
        return [0.1 * (rank + 1), -0.2 * rank, 0.3]

    def _train(self, group):
        """Return the model after three rounds, and whether `step` ever changed its values."""
        parameters = model()
        outer = optimizer(parameters, group)
        changed = False
        for change in self._changes(group.rank):
            train(parameters, change)
            before = parameters_to_vector(parameters).detach()
            outer.step()
            values = parameters_to_vector(parameters).detach()
            changed |= not torch.equal(values, before)
        return values, changed

    def _by_numpy(self, n):
        """The model after the same rounds, computed on one rank."""
        values, velocity = np.arange(1, 6, dtype=np.float32), 0.0
        for changes in zip(*map(self._changes, range(n)), strict=True):
            gradient = -np.mean(changes)
            velocity = MOMENTUM * velocity + gradient
            values = values - np.float32(RATE * (gradient + MOMENTUM * velocity))
        return values

    def _check_close(self, values, wanted, what, hint=""):
        self.assertTrue(
            values.shape == wanted.shape and torch.allclose(values, wanted, atol=1e-5),
            f"{what} must be {shown(wanted)} but is {shown(values)}. {hint}".strip(),
        )


if __name__ == "__main__":
    unittest.main(failfast=True)
