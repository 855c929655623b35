"""The assignment `server`: its solution, and mistakes."""

from __future__ import annotations

from tests.assignments.solution import Solution, Wrong

GAPS = {
    "read": """
with self.lock:
    return self.global_step, self.parameters.copy()
""",
    "update": """
with self.lock:
    staleness = self.global_step - step_at_read
    if self.most_staleness is not None and staleness > self.most_staleness:
        return REFUSED, staleness
    self.parameters -= RATE * gradients
    self.global_step += 1
    return self.global_step, staleness
""",
}

WRONG = (
    Wrong("no copy", "self.parameters.copy()", "self.parameters", "changes when the server"),
    Wrong(
        "reads without the lock",
        "with self.lock:\n            return self.global_step, self.parameters.copy()",
        "return self.global_step, self.parameters.copy()",
        "between the two things that you read",
    ),
    Wrong(
        "reads the parameters too late",
        "with self.lock:\n            return self.global_step, self.parameters.copy()",
        "with self.lock:\n            step = self.global_step\n"
        "        return step, self.parameters.copy()",
        "You read the parameters when the lock was free",
    ),
    Wrong(
        "climbs",
        "self.parameters -= RATE * gradients",
        "self.parameters += RATE * gradients",
        "makes its parameter smaller",
    ),
    Wrong(
        "divides by three workers",
        "self.parameters -= RATE * gradients",
        "self.parameters -= RATE * gradients / 3",
        "is 0.333 times RATE",
    ),
    Wrong("forgets the rate", "RATE * gradients", "gradients", "is 20 times RATE"),
    Wrong(
        "keeps what it computes for itself",
        "self.parameters -= RATE * gradients",
        "parameters = self.parameters - RATE * gradients",
        "are the same after an update",
    ),
    Wrong(
        "counts the staleness before it has the lock",
        "with self.lock:\n            staleness = self.global_step - step_at_read",
        "staleness = self.global_step - step_at_read\n        with self.lock:",
        "your count of the staleness and your update",
    ),
    Wrong(
        "takes 0 for no limit",
        "self.most_staleness is not None and",
        "self.most_staleness and",
        "None is no limit",
    ),
    Wrong(
        "the step before this update",
        "self.global_step += 1\n            return self.global_step, staleness",
        "self.global_step += 1\n            return self.global_step - 1, staleness",
        "The first update makes global step 1",
    ),
    Wrong(
        "counts its own update",
        "self.global_step += 1\n            return self.global_step, staleness",
        "self.global_step += 1\n            return self.global_step, staleness + 1",
        "Nobody else has updated",
    ),
    Wrong(
        "counts from the start",
        "staleness = self.global_step - step_at_read",
        "staleness = self.global_step",
        "counts from the step at the read",
    ),
    Wrong(
        "takes no stale gradients",
        "if self.most_staleness is not None and staleness > self.most_staleness:",
        "if staleness > (self.most_staleness or 100):",
        "however old they are",
    ),
    Wrong(
        "updates without the lock",
        "with self.lock:\n            staleness",
        "if True:\n            staleness",
        "one update is lost",
    ),
    Wrong(
        "counts before it has the lock",
        "with self.lock:\n            staleness = self.global_step - step_at_read",
        "self.global_step += 1\n"
        "        with self.lock:\n"
        "            self.global_step -= 1\n"
        "            staleness = self.global_step - step_at_read",
        "before you hold the lock",
    ),
    Wrong(
        "returns what is there when others came",
        "            return self.global_step, staleness",
        "        return self.global_step, staleness",
        "changed what you returned",
    ),
    Wrong(
        "asks for the lock that it holds",
        "staleness = self.global_step - step_at_read",
        "staleness = self.read()[0] - step_at_read",
        "waits forever",
    ),
    Wrong(
        "refuses too early",
        "staleness > self.most_staleness",
        "staleness >= self.most_staleness",
        "is still good",
    ),
    Wrong(
        "applies and then refuses",
        "            if self.most_staleness is not None and staleness > self.most_staleness:\n"
        "                return REFUSED, staleness\n"
        "            self.parameters -= RATE * gradients\n",
        "            self.parameters -= RATE * gradients\n"
        "            if self.most_staleness is not None and staleness > self.most_staleness:\n"
        "                return REFUSED, staleness\n",
        "change no parameter",
    ),
    Wrong(
        "counts what it refuses",
        "                return REFUSED, staleness",
        "                self.global_step += 1\n                return REFUSED, staleness",
        "don't count as a step",
    ),
)

SERVER = Solution("server", GAPS, WRONG)
