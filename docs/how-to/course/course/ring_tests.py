"""Tests of `ring.py`, on ranks that are threads. By hand: `python course/ring_tests.py`."""

import unittest

import numpy as np
import ranks
import ring
import torch

SIZES = [(10, 3), (11, 3), (12, 4), (2, 4), (7, 4), (7850, 3), (10, 2), (10, 1)]
"""Elements and ranks: also numbers that cannot be divided, and fewer elements than ranks."""

RINGS = [(12, 2), (10, 3), (11, 4), (2, 4)]


def marked(length, rank):
    """A vector that shows who added it: rank 0 is a 1, rank 1 a 10, rank 2 a 100."""
    return torch.full((length,), 10.0**rank)


def times_added(total, rank):
    """How often a sum of marked vectors has that of a rank."""
    return int(total) // 10**rank % 10


class RingTest(unittest.TestCase):
    """One test for each gap, in their order."""

    longMessage = False  # the hint alone

    def test_1_bounds(self):
        for length, n in SIZES:
            limits = list(ring.bounds(length, n))
            shown = f"bounds({length}, {n}) is {limits}"
            self.assertEqual(
                len(limits),
                n + 1,
                f"{shown}, but {n} chunks have {n + 1} bounds: where each begins, and"
                " where the last one ends.",
            )
            self.assertEqual(
                (limits[0], limits[-1]),
                (0, length),
                f"{shown}: some of the {length} elements are in no chunk. Where does the first"
                " chunk begin, and where does the last one end?",
            )
            sizes = [limits[i + 1] - limits[i] for i in range(n)]
            self.assertTrue(
                min(sizes) >= 0 and max(sizes) - min(sizes) <= 1,
                f"{shown}: the chunks have {sizes} elements. Share the elements that are left over:"
                " all ranks wait for the one with the longest chunk.",
            )

    def test_2_exchange(self):
        def give(group):
            incoming = torch.zeros(3)
            ring.exchange(marked(3, group.rank), incoming, group)
            return incoming

        for n in (2, 3):
            try:
                received, _ = ranks.run(n, give)
            except ranks.RankError as error:
                if "wait forever" not in str(error):
                    raise
                raise self.failureException(
                    f"{error} `send` returns only when the other rank receives. Here all ranks"
                    " are in their `send`, and so nobody receives. Which call doesn't wait?"
                ) from None
            for rank in range(n):
                previous = (rank - 1) % n
                self.assertTrue(
                    torch.equal(received[rank], marked(3, previous)),
                    f"With {n} ranks, rank {rank} must receive the numbers of rank {previous}, but"
                    f" `incoming` is {received[rank].tolist()}, and rank {previous} sent"
                    f" {marked(3, previous).tolist()}. Draw the ring: who sends to whom?",
                )

    def test_3_reduce_scatter(self):
        def add(group, length):
            vector = marked(length, group.rank)
            ring.reduce_scatter(vector, group)
            return ring.chunks(vector, group.ranks)

        for length, n in RINGS:
            results, sent = ranks.run(n, add, length)
            for rank, parts in enumerate(results):
                self._check_sum(parts, rank, n)
            self.assertEqual(
                sum(sent),
                4 * (n - 1) * length,
                f"With {n} ranks, all sums are complete, but a chunk is passed on"
                f" {sum(sent) / 4 / length:g} times. Where can it stop?",
            )

    def _check_sum(self, parts, rank, n):
        """Check the sum that a rank has at the end of `reduce_scatter`."""
        wanted = (rank + 1) % n
        part = parts[wanted]
        if not len(part):
            return
        added = [times_added(part[0], each) for each in range(n)]
        where = f"With {n} ranks, at the end rank {rank} has in its chunk {wanted}"
        everyone = sum(10.0**each for each in range(n))
        at = [i for i in range(n) if len(parts[i]) and parts[i][0] == everyone]
        self.assertTrue(
            wanted in at or not at,
            f"The sum of rank {rank} of {n} is in chunk {at}, and must be in chunk {wanted}. Which"
            " chunk does a rank send first, and which one does it receive then?",
        )
        self.assertTrue(
            added[rank],
            f"{where} not its own numbers any more. What happens to them when others arrive?",
        )
        self.assertEqual(
            added,
            [1] * n,
            f"{where} the numbers of the ranks {list(range(n))} this often: {added}. How many"
            " times must a chunk be passed on, until it was at every rank?",
        )

    def test_4_all_gather(self):
        def give(group, length):
            vector = torch.full((length,), -1.0)
            own = (group.rank + 1) % group.ranks
            ring.chunks(vector, group.ranks)[own].fill_(10.0 + own)
            ring.all_gather(vector, group)
            return ring.chunks(vector, group.ranks)

        for length, n in RINGS:
            results, _ = ranks.run(n, give, length)
            for rank, parts in enumerate(results):
                self._check_gathered(parts, rank, n)

    def _check_gathered(self, parts, rank, n):
        """Check the chunks of a rank at the end of `all_gather`; the sum of chunk i is 10 + i."""
        lost, own = [i for i in range(n) if (parts[i] == -1).any()], (rank + 1) % n
        self.assertNotIn(
            own,
            lost,
            f"With {n} ranks, rank {rank} had the sum of chunk {own}, and has lost it. It must send"
            " this chunk before any other.",
        )
        self.assertFalse(
            lost,
            f"With {n} ranks, rank {rank} never gets the sums of the chunks {lost}. How many chunks"
            " does each rank still need after `reduce_scatter`?",
        )
        for i in range(n):
            self.assertTrue(
                (parts[i] == 10.0 + i).all(),
                f"With {n} ranks, rank {rank} has {parts[i].tolist()} in chunk {i}, where the sum"
                f" is {10.0 + i}. A sum is complete: pass it on as it is.",
            )

    def test_5_mean(self):
        def average(group, vectors):
            return ring.mean(vectors[group.rank], group)

        random = np.random.default_rng(1)
        for length, n in SIZES:
            inputs = random.standard_normal((n, length), np.float32)
            vectors = [torch.from_numpy(row.copy()) for row in inputs]
            means, sent = ranks.run(n, average, vectors)
            self._check_means(inputs, means)
            for rank in range(n):
                self.assertTrue(
                    np.array_equal(vectors[rank].numpy(), inputs[rank]),
                    "`mean` has changed its argument. The caller still needs its own gradients:"
                    " work on another vector.",
                )
            self._check_bytes(sent, length, n)

    def _check_means(self, inputs, means):
        n, length = inputs.shape
        first = means[0]
        self.assertEqual(
            (type(first), getattr(first, "shape", None)),
            (torch.Tensor, (length,)),
            f"`mean` of vectors of {length} elements must return such a vector. Yours returns a"
            f" {type(first).__name__}.",
        )
        wanted = inputs.mean(0)
        if n > 1:
            self.assertFalse(
                np.allclose(first, wanted * n, atol=1e-6),
                f"`mean` on {n} ranks is {n} times too large: the sum. What is still to do?",
            )
            self.assertFalse(
                np.allclose(first, wanted * n / (n - 1), atol=1e-6),
                f"`mean` on {n} ranks divides by {n - 1}. How many numbers are in each sum?",
            )
        for rank in range(n):
            self.assertTrue(
                np.allclose(means[rank], wanted, atol=1e-6),
                f"`mean` on {n} ranks: rank {rank} has {means[rank][:4].tolist()} …, and NumPy has"
                f" {wanted[:4].tolist()} ….",
            )
            self.assertTrue(
                torch.equal(means[rank], first),
                f"On {n} ranks, the means of rank 0 and rank {rank} differ in their last bits. Do"
                " the ranks add in different orders? Each sum must be computed once, then sent.",
            )

    def _check_bytes(self, sent, length, n):
        """Check that each rank sends all chunks but one, twice; a number has 4 bytes."""
        shortest, longest = length // n, -(-length // n)
        for rank in range(n):
            self.assertTrue(
                8 * (length - longest) <= sent[rank] <= 8 * (length - shortest),
                f"With {n} ranks and vectors of {4 * length} bytes, the ranks send {sent} bytes."
                " In a ring, each sends one chunk in each exchange, and none works for all.",
            )

    def test_6_kind(self):
        """A vector of another kind keeps it."""
        (first, _), _ = ranks.run(2, lambda group: ring.mean(torch.ones(5).double(), group))
        self.assertEqual(
            first.dtype,
            torch.float64,
            f"The mean of numbers of the kind torch.float64 is {first.dtype}. The place into which"
            " a rank receives must be of the same kind.",
        )


if __name__ == "__main__":
    unittest.main(failfast=True)
