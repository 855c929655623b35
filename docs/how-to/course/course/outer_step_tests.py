"""Tests of `outer_step.py`; the ranks are threads. By hand: `python course/outer_step_tests.py`.

A model here has two parameters of different shapes, and is no network: a test sets their values.
"""

import unittest

import numpy as np
import ranks
import torch
from outer_step import OuterOptimizer
from torch.nn.utils import parameters_to_vector

RATE, MOMENTUM = 0.7, 0.9


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


class OuterStepTest(unittest.TestCase):
    """One test for each gap, in their order."""

    longMessage = False  # the hint alone

    def test_1_gradient(self):
        parameters = model()
        outer = optimizer(parameters)
        train(parameters, 0.5)
        gradient = outer.gradient()
        self.assertEqual(
            getattr(gradient, "shape", None),
            (5,),
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
        def call(group):
            vector = torch.tensor([1.0, 2.0, 3.0]) * 10**group.rank
            return optimizer(model(), group).mean(vector)

        for n in (3, 4, 2, 1):
            means, sent = ranks.run(n, call)
            total = torch.tensor([1.0, 2.0, 3.0]) * sum(10**rank for rank in range(n))
            for rank, mean in enumerate(means):
                if n > 1:
                    self.assertFalse(
                        torch.equal(mean, torch.tensor([1.0, 2.0, 3.0]) * 10**rank / n),
                        f"On {n} ranks, `mean` of rank {rank} has nothing of the others. Who adds"
                        " up the vectors of all?",
                    )
                    self.assertFalse(
                        torch.equal(mean, total),
                        f"On {n} ranks, `mean` is the sum of all: with more ranks, the steps"
                        " would be longer. What is missing?",
                    )
                self._check_close(mean, total / n, f"On {n} ranks, `mean` of rank {rank}")
            self.assertEqual(
                sent,
                [12] * n,
                f"A vector has 12 bytes here, and the ranks gave {sent} bytes to the others. One"
                " exchange of the vector is enough.",
            )

    def test_3_move(self):
        """Three steps, compared with those of `torch.optim.SGD`."""
        outer, wanted = optimizer(model()), torch.nn.Parameter(torch.arange(1.0, 6.0))
        sgd = torch.optim.SGD([wanted], lr=RATE, momentum=MOMENTUM, nesterov=True)
        gradients = torch.tensor([[1.0, -2.0, 0.5, 0.0, 3.0]] * 2 + [[-1.0, 0.0, 0.0, 2.0, 1.0]])
        for number, gradient in enumerate(gradients, 1):
            before = outer.reference.clone()
            wanted.grad = gradient.clone()
            sgd.step()
            outer.move(gradient.clone())
            moved = before - outer.reference
            if number == 1:
                self._check_first_move(moved / RATE, gradient)
            self.assertFalse(
                number == 2 and torch.allclose(moved, RATE * (1 + MOMENTUM) * gradient),
                "The same gradient twice, and the second step is as long as the first. What does"
                " the momentum remember from one step to the next?",
            )
            self._check_close(
                outer.reference,
                wanted.detach(),
                f"After step {number} of `move`, with the gradient {gradient.tolist()},"
                " `reference`",
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
            "The first step is the rate times the gradient, as without Nesterov's idea. It looks"
            " ahead: what does it add to the gradient before the step?",
        )
        self.assertFalse(
            torch.allclose(moved, MOMENTUM * gradient, atol=1e-5),
            "The step has the velocity, but where is the gradient itself?",
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
        self._check_close(
            parameters_to_vector(parameters).detach(),
            torch.arange(10.0, 15.0),
            "After `put_back`, the parameters that the model had at the start",
            "They must stay the same objects, with new values, one after the other.",
        )
        train(parameters, 1.0)
        self.assertTrue(
            torch.equal(outer.reference, torch.arange(10.0, 15.0)),
            "The rank trains on after `put_back`, and `reference` changes with it: they share"
            " memory. Then there is never a change since the last exchange.",
        )

    def test_5_step(self):
        for n in (3, 2, 1):
            trained, _ = ranks.run(n, self._train)
            for rank in range(n):
                self.assertTrue(
                    torch.equal(trained[rank], trained[0]),
                    f"On {n} ranks, rank {rank} has {trained[rank].tolist()} after `step`, and rank"
                    f" 0 has {trained[0].tolist()}. What must all ranks agree on before they move?",
                )
            self._check_close(
                trained[0],
                torch.from_numpy(self._by_numpy(n)),
                f"On {n} ranks, after three rounds of training and `step`, the model",
                "Does each `step` compute the change, its mean, the move, and then put it back?",
            )

    @staticmethod
    def _changes(rank):
        return [0.1 * (rank + 1), -0.2 * rank, 0.3]

    def _train(self, group):
        parameters = model()
        outer = optimizer(parameters, group)
        for change in self._changes(group.rank):
            train(parameters, change)
            outer.step()
        return parameters_to_vector(parameters).detach()

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
            f"{what} must be {wanted.tolist()}, and is {values.tolist()}. {hint}".strip(),
        )


if __name__ == "__main__":
    unittest.main(failfast=True)
