"""Tests of `ring.py`, on ranks that are threads. By hand: `python course/ring_tests.py`."""

import unittest

import numpy as np
import ranks
import ring
import torch

SIZES = [(10, 3), (11, 3), (12, 4), (2, 4), (7, 4), (23, 6), (7850, 3), (10, 2), (10, 1)]
"""Elements and ranks: also numbers that cannot be divided, and fewer elements than ranks."""

RINGS = [(12, 2), (10, 3), (11, 4), (2, 4), (13, 5), (9, 6)]

STUCK = {
    "in `send`": "All ranks are in their `send`, which returns only when the other rank receives."
    " Which call doesn't wait?",
    "in `recv`": "All ranks are in their `recv`, but nothing is on its way. What must a rank do"
    " before?",
    "in `wait`": "`wait` returns only when the other rank has received, just like `send`. What can"
    " a rank do between `isend` and `wait`?",
}
"""Hints for ranks that all wait in the same call."""


def marked(length, rank):
    """A vector that shows who added it: rank 0 is a 1, rank 1 a 10, rank 2 a 100."""
    return torch.full((length,), 10.0**rank)


def times_added(total, rank):
    """How often a sum of marked vectors has that of a rank."""
    return int(total) // 10**rank % 10


def rounded(vector):
    """Its first numbers, to read."""
    return [round(number, 4) for number in vector[:4].tolist()]


class RingTest(unittest.TestCase):
    """One test for each gap, in their order."""

    longMessage = False  # the hint alone

    def test_1_bounds(self):
        for length, n in SIZES:
            limits = ring.bounds(length, n)
            self.assertIsNotNone(
                limits, f"bounds({length}, {n}) returns None. Does every path reach a `return`?"
            )
            limits = list(limits)
            shown = f"bounds({length}, {n}) is {limits}"
            self.assertTrue(
                all(hasattr(limit, "__index__") for limit in limits),
                f"{shown}, but a chunk can only begin at a whole number.",
            )
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
                message = str(error)
                hints = [hint for call, hint in STUCK.items() if message.count(call) == n]
                raise self.failureException(" ".join([message, *hints])) from None
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
            self._check_changed("reduce_scatter", vector, marked(length, group.rank), group)
            return ring.chunks(vector, group.ranks), group.receivers

        for length, n in RINGS:
            results, sent = ranks.run(n, add, length)
            for rank, (parts, _) in enumerate(results):
                self._check_sum(parts, rank, n)
            for rank, (_, receivers) in enumerate(results):
                self._check_receivers("reduce_scatter", receivers, rank, n)
            self.assertEqual(
                sum(sent),
                4 * (n - 1) * length,
                f"With {n} ranks, all sums are complete, but a chunk is passed on"
                f" {sum(sent) / 4 / length:g} times. Where can it stop?",
            )

    def _check_changed(self, name, vector, before, group):
        """Check that what a rank receives is in the vector."""
        self.assertFalse(
            group.sent and torch.equal(vector, before),
            f"The ranks exchange numbers, but `{name}` leaves the vector unchanged. Where is the"
            " result of your calculation: in the vector's memory, or in a new tensor?",
        )

    def _check_receivers(self, name, receivers, rank, n):
        """Check that a rank sends to the next one only."""
        self.assertLessEqual(
            receivers,
            {(rank + 1) % n},
            f"With {n} ranks, rank {rank} sends to the ranks {sorted(receivers)} in `{name}`. In a"
            " ring, a rank sends only to the next one. Use `exchange`.",
        )

    def _check_sum(self, parts, rank, n):
        """Check the sum that a rank has at the end of `reduce_scatter`."""
        wanted = (rank + 1) % n
        part = parts[wanted]
        if not len(part):
            return
        added = [times_added(part[0], each) for each in range(n)]
        everyone = sum(10.0**each for each in range(n))
        at = [i for i in range(n) if len(parts[i]) and parts[i][0] == everyone]
        self.assertTrue(
            wanted in at or not at,
            at
            and f"With {n} ranks, rank {rank} has the sum of chunk {at[0]}, but must have that of"
            f" chunk {wanted}. Which chunk does a rank send first, and which one does it receive"
            " then?",
        )
        self.assertTrue(
            added[rank],
            f"With {n} ranks, chunk {wanted} of rank {rank} no longer includes the rank's own"
            " numbers. What happens to them when others arrive?",
        )
        self.assertEqual(
            added,
            [1] * n,
            f"With {n} ranks, chunk {wanted} of rank {rank} must include each rank's numbers once,"
            f" but the counts for ranks 0 to {n - 1} are {added}. How many times must a chunk be"
            " passed on to visit every rank?",
        )

    def test_4_all_gather(self):
        def give(group, length):
            vector = torch.full((length,), -1.0)
            own = (group.rank + 1) % group.ranks
            ring.chunks(vector, group.ranks)[own].fill_(10.0 + own)
            before = vector.clone()
            ring.all_gather(vector, group)
            self._check_changed("all_gather", vector, before, group)
            return ring.chunks(vector, group.ranks), group.receivers

        for length, n in RINGS:
            results, sent = ranks.run(n, give, length)
            for rank, (parts, _) in enumerate(results):
                self._check_gathered(parts, rank, n)
            for rank, (_, receivers) in enumerate(results):
                self._check_receivers("all_gather", receivers, rank, n)
            self.assertEqual(
                sum(sent),
                4 * (n - 1) * length,
                f"With {n} ranks, all ranks have all sums, but a sum is passed on"
                f" {sum(sent) / 4 / length:g} times. How many ranks don't have it at the start?",
            )

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
            f"With {n} ranks, rank {rank} still lacks the sums of these chunks at the end: {lost}."
            " How many chunks does each rank still need after `reduce_scatter`?",
        )
        for i in range(n):
            self.assertTrue(
                (parts[i] == 10.0 + i).all(),
                f"With {n} ranks, rank {rank} has {parts[i].tolist()} in chunk {i}, where the sum"
                f" is {10.0 + i}. A sum is complete: pass it on as it is.",
            )

    def test_5_mean(self):
        def average(group, vectors):
            vector = vectors[group.rank]
            first = ring.mean(vector, group)
            self._check_vector(first, len(vector))
            kept = first.clone()
            second = ring.mean(-2 * vector, group)
            self._check_vector(second, len(vector))
            return first, kept, second

        random = np.random.default_rng(1)
        for length, n in SIZES:
            inputs = random.standard_normal((n, length), np.float32)
            vectors = [torch.from_numpy(row.copy()) for row in inputs]
            results, sent = ranks.run(n, average, vectors)
            self._check_means(inputs, [kept for _, kept, _ in results])
            for rank, (first, kept, second) in enumerate(results):
                self.assertTrue(
                    np.array_equal(vectors[rank].numpy(), inputs[rank]),
                    "`mean` has changed its argument. A function that returns its result must leave"
                    " its arguments as they were: work on another vector.",
                )
                self.assertTrue(
                    np.allclose(second, -2 * inputs.mean(0), atol=1e-6),
                    "The first call of `mean` returns the right mean, but a second call, with other"
                    f" vectors, returns {rounded(second)} … instead of"
                    f" {rounded(-2 * inputs.mean(0))} …. What is left from the first call?",
                )
                self.assertTrue(
                    torch.equal(first, kept),
                    "The second call of `mean` changes the vector that the first call returned. Do"
                    " the two results share memory?",
                )
            self._check_bytes([count // 2 for count in sent], length, n)

    def _check_vector(self, result, length):
        """Check that a rank's mean is a vector of the right length."""
        self.assertIsNotNone(result, "`mean` returns None. Where does it return its vector?")
        is_tensor = isinstance(result, torch.Tensor)
        shape = f" of the shape {list(result.shape)}" if is_tensor else ""
        self.assertTrue(
            is_tensor and result.shape == (length,),
            f"`mean` of vectors of {length} elements must return such a vector. Yours returns a"
            f" {type(result).__name__}{shape}.",
        )

    def _check_means(self, inputs, means):
        n, first, wanted = len(inputs), means[0], inputs.mean(0)
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
            self._check_mean(means[rank], wanted, rank, n)
            self.assertTrue(
                torch.equal(means[rank], first),
                f"On {n} ranks, the means of rank 0 and rank {rank} differ in their last bits. Do"
                " the ranks add in different orders? Each sum must be computed once, then sent.",
            )

    def _check_mean(self, mean, wanted, rank, n):
        is_close = torch.from_numpy(np.isclose(mean, wanted, atol=1e-6))
        own = (rank + 1) % n
        right = [i for i, part in enumerate(ring.chunks(is_close, n)) if part.all()]
        self.assertFalse(
            n > 1 and right == [own],
            f"`mean` on {n} ranks: only chunk {own} of rank {rank} is right. Which ranks have the"
            " sums of its other chunks?",
        )
        self.assertTrue(
            is_close.all(),
            f"`mean` on {n} ranks: rank {rank} has {rounded(mean)} …, but the mean is"
            f" {rounded(wanted)} …. Which numbers are in the vector that your functions work on?",
        )

    def _check_bytes(self, sent, length, n):
        """Check that each rank sends all chunks but one, twice; a number has 4 bytes."""
        shortest, longest = length // n, -(-length // n)
        for rank in range(n):
            self.assertTrue(
                8 * (length - longest) <= sent[rank] <= 8 * (length - shortest),
                f"With {n} ranks and vectors of {4 * length} bytes, the ranks send {sent} bytes."
                " In a ring, every rank sends one chunk in each exchange, and all ranks share the"
                " work.",
            )

    def test_6_dtype(self):
        """The mean has the dtype of the vectors."""
        (first, _), _ = ranks.run(2, lambda group: ring.mean(torch.ones(5).double(), group))
        self.assertEqual(
            first.dtype,
            torch.float64,
            f"The mean of torch.float64 vectors is {first.dtype}. The dtype must stay the same.",
        )


if __name__ == "__main__":
    unittest.main(failfast=True)
