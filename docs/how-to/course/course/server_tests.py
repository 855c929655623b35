"""The tests of `server.py`: `lab check server` runs them, or `python course/server_tests.py`.

No test needs a network or a second thread. `WatchedLock` shows what the server does while it holds
the lock, and plays the other workers: they come directly before the lock is taken, or directly
after it is free again.
"""

import unittest

import numpy as np
import server


class WatchedLock:
    """Takes the place of the server's lock; looks at the server when it is taken and freed."""

    def __init__(self, watched):
        self.watched, self.held = watched, False
        self.taken = self.freed = None
        self.before = self.after = lambda: None

    def state(self):
        return self.watched.global_step, self.watched.parameters.copy()

    def acquire(self):
        assert not self.held, "A thread that holds the lock asks for it again, and waits forever."
        self.before()
        self.held, self.taken = True, self.state()

    def release(self):
        self.held, self.freed = False, self.state()
        self.after()

    def __enter__(self):
        self.acquire()

    def __exit__(self, *error):
        self.release()


class ServerTests(unittest.TestCase):
    longMessage = False  # the hint alone

    def setUp(self):
        self.server = server.Server(np.array([1.0, 2.0, 3.0]))
        self.lock = self.server.lock = WatchedLock(self.server)

    def read(self):
        """Call `read`; see that it returns two things of the right kind."""
        answer = self.server.read()
        self.assertIsInstance(answer, tuple, f"`read` returns {answer!r}, not a tuple of two.")
        kinds = [np.ndim(each) for each in answer]
        self.assertEqual(kinds, [0, 1], "`read` returns first a number, and then a vector.")
        return answer

    def update(self, *gradients, read_at):
        """Call `update`; see that it returns two numbers."""
        answer = self.server.update(np.array(gradients), read_at)
        self.assertIsInstance(answer, tuple, f"`update` returns {answer!r}, not a tuple of two.")
        self.assertEqual([np.ndim(each) for each in answer], [0, 0], "It returns two numbers.")
        return answer

    def another_update(self):
        """Update as another worker does, once."""
        self.lock.before = self.lock.after = lambda: None
        self.server.global_step += 1
        self.server.parameters = self.server.parameters - 1

    def assert_parameters(self, wanted, hint):
        self.assertTrue(np.allclose(self.server.parameters, wanted), hint)

    def test_01_read_returns_the_step_and_the_parameters(self):
        self.server.global_step = 7
        step, parameters = self.read()
        self.assertEqual(step, 7, "The number that `read` returns is the global step.")
        same = np.array_equal(parameters, [1, 2, 3])
        self.assertTrue(same, "`read` returns a vector with all parameters.")

    def test_02_both_parts_of_a_read_are_of_one_moment(self):
        self.lock.after = self.another_update
        step, parameters = self.read()
        hint = "Another thread may update between the two things that you read."
        self.assertIsNotNone(self.lock.taken, hint)
        self.assertFalse(self.lock.held, "`read` keeps the lock: the next worker waits forever.")
        self.assertEqual(step, 0, "You read the step when the lock was free again: too late.")
        same = np.array_equal(parameters, [1, 2, 3])
        self.assertTrue(same, "You read the parameters when the lock was free again: too late.")

    def test_03_an_update_is_a_step_against_the_gradients(self):
        self.update(20.0, 20.0, 20.0, read_at=0)
        moved = (1 - self.server.parameters[0]) / (20 * server.RATE)
        self.assertGreaterEqual(moved, 0, "A positive gradient makes its parameter smaller.")
        self.assertNotEqual(moved, 0, "The server's parameters are the same after an update.")
        self.assert_parameters([0, 1, 2], f"An update is {moved:.3g} times RATE times gradients.")

    def test_04_every_update_counts(self):
        steps = [self.update(1.0, 1.0, 1.0, read_at=0)[0] for _ in range(3)]
        self.assertEqual(steps[0], 1, "The first update makes global step 1; `update` returns it.")
        self.assertEqual(steps, [1, 2, 3], "Each update raises the global step by one.")

    def test_05_staleness_counts_the_updates_since_the_read(self):
        _, staleness = self.update(1.0, 1.0, 1.0, read_at=0)
        hint = "Nobody else has updated since this read: its staleness is 0."
        self.assertEqual(staleness, 0, hint)
        _, staleness = self.update(1.0, 1.0, 1.0, read_at=0)
        self.assertEqual(staleness, 1, "One update was made since this read.")
        self.server.global_step = 12
        _, staleness = self.update(1.0, 1.0, 1.0, read_at=9)
        hint = "Staleness is not the age of the server: it counts from the step at the read."
        self.assertEqual(staleness, 3, hint)

    def test_06_stale_gradients_are_applied(self):
        self.server.global_step = 1000
        self.update(20.0, 20.0, 20.0, read_at=0)
        hint = "Without `most_staleness` the server applies all gradients, however old they are."
        self.assert_parameters([0, 1, 2], hint)

    def test_07_nobody_sees_half_an_update(self):
        self.update(20.0, 20.0, 20.0, read_at=0)
        hint = "Two threads can update at the same moment, and one update is lost."
        self.assertIsNotNone(self.lock.taken, hint)
        self.assertFalse(self.lock.held, "`update` keeps the lock: the next worker waits forever.")
        (before, old), (after, new) = self.lock.taken, self.lock.freed
        unchanged = before == 0 and np.array_equal(old, [1, 2, 3])
        self.assertTrue(unchanged, "You change something before you hold the lock.")
        complete = after == 1 and np.allclose(new, [0, 1, 2])
        self.assertTrue(complete, "You change something after you have released the lock.")

    def test_08_the_answer_is_of_this_update(self):
        self.lock.after = self.another_update
        answer = self.update(1.0, 1.0, 1.0, read_at=0)
        hint = "Another worker came when the lock was free, and changed what you returned."
        self.assertEqual(answer, (1, 0), hint)

    def test_09_the_staleness_is_of_this_update(self):
        self.lock.before = self.another_update
        _, staleness = self.update(1.0, 1.0, 1.0, read_at=0)
        hint = "An update came between your count of the staleness and your update: it is one more."
        self.assertEqual(staleness, 1, hint)

    def test_10_what_was_read_stays(self):
        _, parameters = self.read()
        self.update(20.0, 20.0, 20.0, read_at=0)
        stays = np.array_equal(parameters, [1, 2, 3])
        self.assertTrue(stays, "What a worker has read changes when the server is updated later.")

    def test_11_what_is_too_old_is_refused(self):
        self.server.most_staleness, self.server.global_step = 2, 10
        step, _ = self.update(20.0, 20.0, 20.0, read_at=8)
        self.assertEqual(step, 11, "A staleness of exactly `most_staleness` is still good.")
        refused = self.update(20.0, 20.0, 20.0, read_at=8)
        hint = "Gradients that are too old: return REFUSED, and their staleness."
        self.assertEqual(refused, (server.REFUSED, 3), hint)
        self.assert_parameters([0, 1, 2], "Refused gradients change no parameter.")
        self.assertEqual(self.server.global_step, 11, "Refused gradients don't count as a step.")
        self.assertFalse(self.lock.held, "After a refusal the lock must be free again.")

    def test_12_no_staleness_at_all(self):
        self.server.most_staleness, self.server.global_step = 0, 10
        step, _ = self.update(20.0, 20.0, 20.0, read_at=9)
        hint = "With `most_staleness` 0 the server refuses all stale gradients; None is no limit."
        self.assertEqual(step, server.REFUSED, hint)


if __name__ == "__main__":
    unittest.main(failfast=True)
