"""The assignment `outer-step`: its solution, and mistakes."""

from __future__ import annotations

from tests.assignments.solution import Solution, Wrong

GAPS = {
    "gradient": """
return self.reference - parameters_to_vector(self.parameters).detach()
""",
    "mean": """
self.group.all_reduce(vector)
return vector / self.group.ranks
""",
    "move": """
self.velocity = self.momentum * self.velocity + gradient
self.reference -= self.rate * (gradient + self.momentum * self.velocity)
""",
    "put_back": """
begin = 0
for parameter in self.parameters:
    end = begin + parameter.numel()
    parameter.copy_(self.reference[begin:end].view_as(parameter))
    begin = end
""",
    "step": """
self.move(self.mean(self.gradient()))
self.put_back()
""",
}

_DIFFERENCE = "self.reference - parameters_to_vector(self.parameters).detach()"
_COPY = "parameter.copy_(self.reference[begin:end].view_as(parameter))"
_NESTEROV = "self.reference -= self.rate * (gradient + self.momentum * self.velocity)"
_VELOCITY = "self.velocity = self.momentum * self.velocity + gradient"
_EVERY_FOURTH = """
self.made = getattr(self, "made", 0) + 1
self.velocity = (self.made % 4 != 0) * self.momentum * self.velocity + gradient
""".strip().replace("\n", "\n        ")
_ONE_TENSOR = """
if self.velocity.any():
    self.velocity.mul_(self.momentum).add_(gradient)
else:
    self.velocity = gradient
gradient += self.momentum * self.velocity
self.reference -= self.rate * gradient
""".strip().replace("\n", "\n        ")

WRONG = (
    Wrong(
        "the gradient points forward",
        _DIFFERENCE,
        "parameters_to_vector(self.parameters).detach() - self.reference",
        "goes back to where the rank came from",
    ),
    Wrong(
        "the gradient has a graph",
        _DIFFERENCE,
        "self.reference - parameters_to_vector(self.parameters)",
        "Detach it.",
    ),
    Wrong(
        "one gradient for each parameter",
        _DIFFERENCE,
        "[parameter.detach() for parameter in self.parameters]",
        "What makes one vector of all parameters?",
    ),
    Wrong(
        "the parameters instead of their change",
        _DIFFERENCE,
        "parameters_to_vector(self.parameters).detach()",
        "All values have grown by 0.5. `gradient` must be",
    ),
    Wrong(
        "the sum of the ranks",
        "return vector / self.group.ranks",
        "return vector",
        "with more ranks, the steps would be longer",
    ),
    Wrong(
        "what `all_reduce` returns",
        "self.group.all_reduce(vector)\n        return vector / self.group.ranks",
        "vector /= self.group.ranks\n        return self.group.all_reduce(vector)",
        "changes its tensor and returns nothing",
    ),
    Wrong(
        "the process group without its count",
        "self.group.all_reduce(vector)",
        "dist.all_reduce(vector)",
        "Use `self.group`.",
    ),
    Wrong(
        "no exchange",
        "self.group.all_reduce(vector)",
        "pass",
        "has nothing from the other ranks",
    ),
    Wrong(
        "divides by one rank too few",
        "return vector / self.group.ranks",
        "return vector / max(1, self.group.ranks - 1)",
        "`mean` of rank 0 must be",
    ),
    Wrong(
        "every rank but the first takes part",
        "self.group.all_reduce(vector)",
        "self.group.rank and self.group.all_reduce(vector)",
        "waits in `all_reduce`",
    ),
    Wrong(
        "two exchanges",
        "self.group.all_reduce(vector)",
        "self.group.all_reduce(vector.clone())\n        self.group.all_reduce(vector)",
        "in each call of `mean` makes 12 bytes",
    ),
    Wrong(
        "the momentum of Polyak",
        _NESTEROV,
        "self.reference -= self.rate * self.velocity",
        "without Nesterov's momentum",
    ),
    Wrong(
        "Nesterov without the gradient",
        _NESTEROV,
        "self.reference -= self.rate * self.momentum * self.velocity",
        "where is the gradient itself?",
    ),
    Wrong(
        "the velocity is forgotten",
        _VELOCITY,
        "self.velocity = gradient",
        "What does the momentum remember",
    ),
    Wrong(
        "the velocity is forgotten at every fourth step",
        _VELOCITY,
        _EVERY_FOURTH,
        "After step 4 of `move`",
    ),
    Wrong(
        "the velocity and the gradient are one tensor",
        f"{_VELOCITY}\n        {_NESTEROV}",
        _ONE_TENSOR,
        "were the same tensor",
    ),
    Wrong(
        "the default rate",
        _NESTEROV,
        _NESTEROV.replace("self.rate", "0.7"),
        "but not with the rate 0.5 and the momentum 0.9",
    ),
    Wrong(
        "the default momentum",
        _NESTEROV,
        _NESTEROV.replace("self.momentum", "0.9"),
        "but not with the rate 0.7 and the momentum 0.8",
    ),
    Wrong(
        "the default momentum instead of none",
        _NESTEROV,
        _NESTEROV.replace("self.momentum", "(self.momentum or 0.9)"),
        "but not with the rate 0.7 and the momentum 0.0",
    ),
    Wrong(
        "a mean as velocity",
        _VELOCITY,
        "self.velocity = self.momentum * self.velocity + (1 - self.momentum) * gradient",
        "as in a moving average",
    ),
    Wrong("along the gradient", _NESTEROV, _NESTEROV.replace("-=", "+="), "and not against it"),
    Wrong(
        "the reference stays",
        _NESTEROV,
        _NESTEROV.replace("self.reference -=", "reference = self.reference -"),
        "Did you change a copy?",
    ),
    Wrong(
        "parameters that are parts of the reference",
        _COPY,
        "parameter.data = self.reference[begin:end].view_as(parameter)",
        "they share memory",
    ),
    Wrong(
        "the first values for each parameter",
        "    begin = end\n",
        "    pass\n",
        "does the second parameter begin?",
    ),
    Wrong(
        "new parameters",
        _COPY,
        "parameter = torch.nn.Parameter(self.reference[begin:end].view_as(parameter).clone())",
        "still has its old values",
    ),
    Wrong(
        "parameters that are vectors",
        _COPY,
        "parameter.data = self.reference[begin:end].clone()",
        "has changed the shapes",
    ),
    Wrong(
        "each rank makes a step of its own",
        "self.move(self.mean(self.gradient()))",
        "self.move(self.gradient())",
        "What must all ranks agree on",
    ),
    Wrong(
        "the mean of the parameters, without a step",
        "self.move(self.mean(self.gradient()))",
        "self.reference -= self.mean(self.gradient())",
        "Work out one round on paper",
    ),
    Wrong(
        "the values are not put back",
        "self.move(self.mean(self.gradient()))\n        self.put_back()",
        "self.move(self.mean(self.gradient()))",
        "the same before and after `step`",
    ),
    Wrong(
        "two exchanges in a step",
        "self.move(self.mean(self.gradient()))",
        "self.move(self.mean(self.mean(self.gradient())))",
        "in each of three calls of `step` makes 60 bytes",
    ),
)

OUTER_STEP = Solution("outer-step", GAPS, WRONG)
