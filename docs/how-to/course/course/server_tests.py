"""The tests of `server.py`: `lab check server` runs them, or `python course/server_tests.py` here.

No test needs a network or a second thread. `WatchedLock` shows what the server does while it holds
the lock, and plays the other workers: they come at once when the lock is free.
"""

import unittest

import numpy as np
import server


class WatchedLock:
    """Takes the place of the server's lock; looks at the server when it is taken and freed."""

    def __init__(self, watched):
        self.watched, self.held = watched, False
        self.taken = self.freed = None
        self.then = lambda: None

    def state(self):
        return self.watched.global_step, self.watched.parameters.copy()

    def acquire(self):
        assert not self.held, "A thread that holds the lock asks for it again, and waits for ever."
        self.held, self.taken = True, self.state()

    def release(self):
        self.held, self.freed = False, self.state()
        self.then()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()


class ServerTests(unittest.TestCase):
    def setUp(self):
        self.server = server.Server(np.array([1.0, 2.0, 3.0]))
        self.lock = self.server.lock = WatchedLock(self.server)

    def update(self, *gradients, read_at):
        return self.server.update(np.array(gradients), read_at)

    def test_01_read_returns_the_step_and_the_parameters(self):
        self.server.global_step = 7
        answer = self.server.read()
        self.assertEqual(len(answer), 2, "`read` returns two things: the step, the parameters.")
        self.assertEqual(answer[0], 7, "The first thing that `read` returns is the global step.")
        same = np.array_equal(answer[1], [1, 2, 3])
        self.assertTrue(same, "The second thing that `read` returns are all parameters.")

    def test_02_what_was_read_stays(self):
        _, parameters = self.server.read()
        self.server.parameters -= 1
        stays = np.array_equal(parameters, [1, 2, 3])
        self.assertTrue(stays, "What a worker has read changes when the server is updated later.")

    def test_03_both_parts_of_a_read_are_of_one_moment(self):
        self.lock.then = self.another_update
        step, parameters = self.server.read()
        self.assertIsNotNone(
            self.lock.taken, "Another thread may update between the two things that you read."
        )
        self.assertFalse(self.lock.held, "`read` keeps the lock: the next worker waits for ever.")
        self.assertEqual(step, 0, "You read the step when the lock was free again: too late.")
        same = np.array_equal(parameters, [1, 2, 3])
        self.assertTrue(same, "You read the parameters when the lock was free again: too late.")

    def another_update(self):
        self.lock.then = lambda: None
        self.server.global_step += 1
        self.server.parameters -= 1

    def test_04_an_update_is_a_step_against_the_gradients(self):
        self.update(20.0, 0.0, -40.0, read_at=0)
        found = self.server.parameters
        self.assertTrue(
            np.isfinite(found).all() and found[1] == 2, "A gradient of 0 changes nothing."
        )
        self.assertLess(found[0], 1, "A positive gradient makes its parameter smaller.")
        self.assertTrue(
            np.allclose(found, [0, 2, 5]),
            "An update is RATE × gradients: of one worker, not the mean over all.",
        )

    def test_05_every_update_counts(self):
        steps = [self.update(1.0, 1.0, 1.0, read_at=0)[0] for _ in range(3)]
        self.assertEqual(steps[0], 1, "The first update makes global step 1; `update` returns it.")
        self.assertEqual(steps, [1, 2, 3], "Each update raises the global step by one.")

    def test_06_staleness_counts_the_updates_since_the_read(self):
        self.assertEqual(
            self.update(1.0, 1.0, 1.0, read_at=0)[1],
            0,
            "Nobody else has updated since this read: its staleness is 0.",
        )
        self.assertEqual(
            self.update(1.0, 1.0, 1.0, read_at=0)[1], 1, "One update was made since this read."
        )
        self.server.global_step = 12
        self.assertEqual(
            self.update(1.0, 1.0, 1.0, read_at=9)[1],
            3,
            "Staleness is not the age of the server: it counts from the step at the read.",
        )

    def test_07_stale_gradients_are_applied(self):
        self.server.global_step = 1000
        self.update(20.0, 20.0, 20.0, read_at=0)
        self.assertTrue(
            np.allclose(self.server.parameters, [0, 1, 2]),
            "Without `most_staleness` the server applies all gradients, as old as they may be.",
        )

    def test_08_nobody_sees_half_an_update(self):
        self.update(20.0, 20.0, 20.0, read_at=0)
        self.assertIsNotNone(
            self.lock.taken, "Two threads can update at the same moment, and one update is lost."
        )
        self.assertFalse(self.lock.held, "`update` keeps the lock: the next worker waits for ever.")
        (before, old), (after, new) = self.lock.taken, self.lock.freed
        self.assertTrue(
            before == 0 and np.array_equal(old, [1, 2, 3]),
            "You change something before you hold the lock.",
        )
        self.assertTrue(
            after == 1 and np.allclose(new, [0, 1, 2]),
            "You change something when the lock is free again.",
        )

    def test_09_the_answer_is_of_this_update(self):
        self.lock.then = self.another_update
        self.assertEqual(
            self.update(1.0, 1.0, 1.0, read_at=0),
            (1, 0),
            "Another worker came when the lock was free, and changed what you returned.",
        )

    def test_10_what_is_too_old_is_refused(self):
        self.server.most_staleness, self.server.global_step = 2, 10
        self.assertEqual(
            self.update(20.0, 20.0, 20.0, read_at=8)[0],
            11,
            "A staleness of exactly `most_staleness` is still good.",
        )
        refused = self.update(20.0, 20.0, 20.0, read_at=8)
        self.assertEqual(
            refused, (server.REFUSED, 3), "Older gradients: REFUSED, and their staleness."
        )
        self.assertTrue(
            np.allclose(self.server.parameters, [0, 1, 2]), "Refused gradients change no parameter."
        )
        self.assertEqual(self.server.global_step, 11, "Refused gradients are no step.")
        self.assertFalse(self.lock.held, "After a refusal the lock must be free again.")


if __name__ == "__main__":
    unittest.main()
