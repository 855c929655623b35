"""A tolerant reader of lines such as `Step: 10, Epoch: 1, Cost: 0.5` or `loss = 2.3, step = 1`.

A line is a list of pairs: a phrase, a separator, a number. The last term of a phrase is its key. A
small vocabulary says which keys count, and which terms may stand beside them. A phrase with an
unknown term has no meaning: `accuracy target: 0.9` is not an accuracy. Such a line is not read,
because a wrong record is worse than a missing one.

- A step or an epoch with a loss or an accuracy is a record of a step. If all of them are of a test
  or a validation, it is a record of a test.
- A local and a global step are a record of a step. So is a line of one of the `_FORMS`.
- An accuracy or a final cost without a step is a final record, if the line has nothing else.
- A `step` beside a global step is the worker's own. Otherwise it is taken as the global step, which
  most distributed programs fetch and print: a worker's own steps are never overstated.
- A step of an epoch (`Step [100/600]` beside an epoch) is neither, and is left out.
- A fraction of an epoch belongs to the epoch that it is a part of: `0.1` to the first.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lab.protocol.records import Record
from lab.protocol.records.record_pattern import fraction, number, whole

# Python before 3.11.5 matches a possessive group wrongly, so this one is not.
_TOKEN: Final = re.compile(r"(?:[\w./+%-]|,(?=\d))+", re.ASCII)
_OF_ALL: Final = re.compile(r"([\d,]++)/([\d,]++)", re.ASCII)
_GAP: Final = re.compile(r"[\s:=#(\[\"'|]*+")
_PERCENT: Final = re.compile(r" ?%")
_PART_OF_EPOCH: Final = re.compile(r"\d{1,6}\.\d++")


def _table(*rows: tuple[str, str]) -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(form), read) for form, read in rows)


_PHRASES: Final = _table(
    (r"[iwe]\d{4} [\d:.]++ ++\d++ [\w./-]++:\d++\] ", ""),
    (r"\b(?:precision|accuracy) ?@ ?1\b", "accuracy"),
    (r"\b(loss|accuracy|acc) \((\w++)\)", r"\2 \1"),
    # `after 100 training steps (28 global steps)` is read as `after step 100, (global step 28,`.
    (
        r"(after|\() *+(\d{1,18}) ++(?:training )?(global |local )?(step|epoch)"
        r"(?:\(s\)|s)?(?=[ ,):])",
        r"\1 \3\4 \2,",
    ),
    # `on iteration 500 ps it reaches 0.91 accuracy` is read as `… iteration 500, accuracy 0.91`.
    (
        r"((?:step|iteration) \d{1,18}),?(?: \w+){0,3} reach(?:es|ed) ([\d.]+ ?%?)"
        r" (?:\w+ )?accuracy",
        r"\1, accuracy \2",
    ),
)
"""Parts of lines, and how they are read."""

_TASK: Final = r"(?:rank|worker|task|process|gpu|node)(?: id| index)?\W{0,3}\d++"
_COUNT: Final = r"(?:global |local )?(?:step|epoch|iter(?:ation)?)\W{1,3}\d{1,18}"
_NO_PROSE: Final = r"(?!\w|\.\d|:| (?!done)[a-z])"
_BEGINS: Final = r"(?:(?:starting|start|begin(?:ning)?|finished|completed|train(?:ing)?) ){0,2}"
_ENDS: Final = r"(?: (?:done|finished|completed?))?(?: in [\d.]++ ?s\w*+)?"
_FORMS: Final = _table(
    (r"\W*+(?:global[ _]|train(?:ing)? )?step[\s:=#]++\d{1,18}\W*+", r"\g<0>"),
    (r"accuracy \(batch\)\W{1,3}[\d.]++ ?%?", r"\g<0>"),
    # The tutorial with several GPUs prints the worker's own step.
    (r"[\d-]{10} [\d:.]++ (step \d++), (loss = \S++) \([^()]*sec/batch\)", r"local \1, \2"),
    # PyTorch's first tutorial prints the loss beside the examples: `loss: 2.3  [   64/60000]`
    (r"(loss: [\d.]++) *+\[ *+\d++/ *+\d++\]", r"\1"),
    # `Training epoch 7 of 10`, `Epoch 2 in 3.2 sec`; the heading `Epoch 3` alone shows no step
    (
        rf"(?!(?:start )?epoch [\W\dof]*+$)\W*+{_BEGINS}(epoch [\[#]?\d{{1,6}})"
        rf"(?: ?(?:/|of) ?\d++)?{_ENDS}\W*+",
        r"\1",
    ),
    # `Epoch [1/10], Step [100/600]`
    (r"epoch\W{1,3}\d{1,6}(?:/\d++)?\W{1,3}(?:step|batch|iter\w*+)\W{1,3}\d++/\d++.*", r"\g<0>"),
    # `rank: 0, step: 5, value: …`, `[GPU0] Epoch 0 | Batchsize: 32`
    (rf"\W*+{_TASK}\W{{1,3}}({_COUNT}{_NO_PROSE}.*)", r"\1"),
    # `local step 5 of worker 1`
    (rf"({_COUNT}) (?:of|on) {_TASK}(?!\.\d)(.*)", r"\1, \2"),
    # tqdm's bar, of a training or without a label: ` 45%|████▌ | 45/100 [00:10<00:12, 4.5it/s]`.
    # One with more digits counts bytes.
    (
        rf"(?:\s*+|\W*+(?:{_TASK}\W*+)?((?:train|epoch|step|iter|loss)[^|%]*?))\d{{1,3}}%\|[^|]*+\|"
        r"\s*+(\d{1,6}/\d{1,6}) \[[\d:]++<[\d:?]++, *+[\d.]++(?:it/s|s/it)(.*)\]",
        r"\1, step \2\3",
    ),
)
"""Lines that count a step or an epoch even without a loss or an accuracy, and how they are read."""

_EXCLUDED: Final = re.compile(
    r"[\w.]*(?:error|exception|warning):"
    r"|[^]]{0,200}\.(?:cc|cpp|cu|h):\d++\]|.{0,200}\bnamespace\("
)

_STEPS: Final = {
    "step": "step", "iter": "step", "iteration": "step", "train_step": "step",
    "training_step": "step", "global_step": "global_step", "globalstep": "global_step",
    "local_step": "local_step", "epoch": "epoch",
}  # fmt: skip
_NO_STEP: Final = frozenset(
    (
        "best",
        "decay",
        "each",
        "every",
        "final",
        "last",
        "log",
        "max",
        "next",
        "num",
        "number",
        "of",
        "per",
        "save",
        "start",
        "test",
        "time",
        "total",
        "until",
    )
)
"""Terms directly before `step` or `epoch` that give it another meaning."""

_TRAINED: Final = {
    "loss": "loss", "cost": "loss", "crossentropy": "loss", "accuracy": "accuracy",
    "acc": "accuracy",
}  # fmt: skip
_PARTS: Final = {
    "test": ("test", "testing", "eval", "evaluation"),
    "validation": ("val", "valid", "validation", "dev"),
    "training": ("train", "training", "batch", "minibatch", "mini"),
    "final": ("final",),
}
"""The part of the data that a loss or an accuracy is of, and the terms for it."""

_BESIDE: Final = frozenset(term for terms in _PARTS.values() for term in terms) | frozenset(
    (
        "1",
        "all",
        "average",
        "averaged",
        "avg",
        "binary",
        "categorical",
        "cross",
        "current",
        "data",
        "dataset",
        "entropy",
        "epoch",
        "global",
        "image",
        "images",
        "mean",
        "model",
        "mse",
        "nll",
        "overall",
        "running",
        "sample",
        "samples",
        "set",
        "softmax",
        "sparse",
        "step",
        "the",
        "top",
        "total",
    )
)
"""The terms that may stand beside `loss` or `accuracy`."""

_JOINING: Final = frozenset(("at", "for", "in", "of", "on", "over", "using"))
_VERBS: Final = frozenset(("is", "was"))
_NEUTRAL: Final = frozenset(
    (
        "auc",
        "correct",
        "elapsed",
        "examples",
        "f1",
        "gpu",
        "images",
        "n",
        "node",
        "precision",
        "rank",
        "recall",
        "samples",
        "task",
        "time",
        "worker",
    )
)
"""The keys of other numbers in a line with a final accuracy."""

_UNITS: Final = frozenset(("examples", "images", "ms", "s", "samples", "sec", "seconds", "secs"))
_LONGEST: Final = 7  # terms of a phrase, without the key


class _Value(NamedTuple):
    """A printed number: its text, whether a per cent sign follows, and the text after `/`."""

    text: str
    percent: bool = False
    of_all: str = ""


@dataclass(slots=True)
class _Numbers:
    """The numbers of one line that have a meaning.

    Attributes:
        steps: `step`, `global_step`, `local_step` or `epoch` to its value.
        trained: `loss` or `accuracy`, and the part of the data or "", to the value.
        is_of_all: Whether the number of all steps follows a step: `100/600`.
        is_clear: Whether each number and each term of the line is known.
        is_wrong: Whether a step is not a whole number, or has two values.
    """

    steps: dict[str, int] = field(default_factory=dict)
    trained: dict[tuple[str, str], float] = field(default_factory=dict)
    is_of_all: bool = False
    is_clear: bool = True
    is_wrong: bool = False

    def first(self, name: str, *parts: str) -> Record:
        """Return the field with the value of the first of these parts that has one."""
        known = [self.trained[name, part] for part in parts if (name, part) in self.trained]
        return {name: known[0]} if known else {}

    def values(self) -> Record:
        """Return the training's loss and a test's accuracy, or those of other parts of the data."""
        return {
            **self.first("loss", "training", "", "validation", "test", "final"),
            **self.first("accuracy", "test", "validation", "final", "", "training"),
        }


def read_numbers(line: str) -> Record | None:
    """Read a line in lower case; None if it is not a record. Epochs are as printed."""
    if "lab kind=" in line or _EXCLUDED.match(line):
        return None
    form = next(
        (match.expand(read) for form, read in _FORMS if (match := form.fullmatch(line))), ""
    )
    numbers = _understand(form or line)
    if numbers.is_wrong:
        return None
    steps = _steps(numbers)
    kind = "epoch" if steps.keys() == {"epoch"} else "step"
    if not numbers.steps and not form:
        values = {
            **numbers.first("accuracy", "test", "final", ""),
            **numbers.first("loss", "test", "final"),
        }
        return {"kind": "final", **values} if values and numbers.is_clear else None
    if not numbers.trained:
        both = {"local_step", "global_step"} <= steps.keys()
        return {"kind": kind, **steps} if form or both else None
    if not steps and not form:
        return None
    if {part for _, part in numbers.trained} <= {"test", "validation"} or "saving dict for" in line:
        kind = "eval"
    return {"kind": kind, **steps, **numbers.values()}


def read_metrics(line: str) -> tuple[Record, Record]:
    """Read the losses and accuracies of a line in lower case: all, and those of a validation."""
    numbers = _understand(line)
    of_validation: Record = {
        **numbers.first("loss", "validation"),
        **numbers.first("accuracy", "validation"),
    }
    return numbers.values(), of_validation


def _steps(numbers: _Numbers) -> dict[str, int]:
    """Return the steps of a line; decide what `step` means."""
    steps = dict(numbers.steps)
    own = steps.pop("step", None)
    if own is None or (numbers.is_of_all and "epoch" in steps):
        return steps
    if "global_step" in steps:
        return {"local_step": own, **steps}
    return {**steps, "global_step": own}


def _understand(line: str) -> _Numbers:
    numbers = _Numbers()
    awaited: tuple[str, str] | None = None  # `accuracy` in `accuracy at step 10: 0.9`
    for part, read in _PHRASES:
        line = part.sub(read, line)
    for phrase, value in _pairs(line):
        if value is None:
            numbers.is_clear &= _UNITS.issuperset(phrase)
            continue
        known = awaited if _VERBS.issuperset(phrase) else _trained(phrase)
        awaited = None
        if known is not None:
            _add(numbers, known, value)
        elif name := _step(phrase):
            step = None if value.percent else whole(value.text)
            if name == "epoch" and line.startswith("{") and _PART_OF_EPOCH.fullmatch(value.text):
                step = max(math.ceil(float(value.text)), 1)
            if step is None or numbers.steps.setdefault(name, step) != step:
                numbers.is_wrong = True
            numbers.is_of_all |= bool(value.of_all) and name != "epoch"
            awaited = _trained(phrase[: _joint(phrase)])
        elif phrase and phrase[-1] not in _NEUTRAL:
            numbers.is_clear = False
    return numbers


def _add(numbers: _Numbers, known: tuple[str, str], value: _Value) -> None:
    read = None
    if value.of_all:  # `accuracy: 9123/10000`
        right, of_all = whole(value.text), whole(value.of_all)
        if known[0] == "accuracy" and right is not None and of_all and right <= of_all:
            read = right / of_all
    elif known[0] == "loss":
        read = number(value.text)
    else:
        read = fraction(value.text, percent=value.percent)
    if read is None or (known[0] == "loss" and value.percent):
        numbers.is_clear = False
    else:
        numbers.trained.setdefault(known, read)


def _step(phrase: Sequence[str]) -> str | None:
    """Return the kind of step that a phrase means; None if it is not a step."""
    if not phrase:
        return None
    key, before = phrase[-1].replace("-", "_"), phrase[:-1]
    if key == "step" and before and before[-1] in {"global", "local"}:
        key, before = f"{before[-1]}_{key}", before[:-1]
    return None if before and before[-1] in _NO_STEP else _STEPS.get(key)


def _trained(phrase: Sequence[str]) -> tuple[str, str] | None:
    """Return which of loss and accuracy a phrase means, and of which part of the data."""
    parts = [part for term in phrase for part in re.split("[_-]", term) if part not in _VERBS]
    at = _joint(parts)
    key, beside = parts[max(at - 1, 0) : at], parts[: max(at - 1, 0)] + parts[at + 1 :]
    name = "loss" if parts[max(at - 2, 0) : at] == ["cross", "entropy"] else None
    name = name or (_TRAINED.get(key[0]) if key else None)
    if name is None or not _BESIDE.issuperset(beside) or _step(phrase) is not None:
        return None
    of = [part for part, terms in _PARTS.items() if any(term in beside for term in terms)]
    return name, of[0] if of else ""


def _joint(phrase: Sequence[str]) -> int:
    """Return the place of the first joining term, or the end."""
    return next((at for at, term in enumerate(phrase) if term in _JOINING), len(phrase))


def _pairs(line: str) -> Iterator[tuple[list[str], _Value | None]]:
    """Yield each number with the phrase before it, or []; at last the phrase after all numbers."""
    phrase: list[str] = []
    end = 0
    for token in _TOKEN.finditer(line):
        text, gap = token[0], line[end : token.start()]
        end = token.end()
        if (value := _value(text, line, end)) is not None:
            yield phrase if _GAP.fullmatch(gap) else [], value
            phrase = []
        elif not re.search("[a-z]", text):
            phrase = []
        else:
            phrase = [text] if gap.strip() else [*phrase[-_LONGEST:], text]
    yield phrase, None


def _value(token: str, line: str, end: int) -> _Value | None:
    if of_all := _OF_ALL.fullmatch(token):
        return _Value(of_all[1], of_all=of_all[2])
    text = token.rstrip(".%")
    if number(text) is None:
        return None
    return _Value(text, percent="%" in token or _PERCENT.match(line, end) is not None)
