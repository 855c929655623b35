"""Booting, and seeing for oneself that every task has its own cards and no others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from lab.backends import Backend, Check, Environment, Say
from lab.errors import LabError
from lab.gpu import Gpu, NvmlError, survey
from lab.gpu.verification import Sight, Verdict, Word, verdict
from lab.placement.plan import Plan

_MANY = 3  # so many tasks are named


def boot(backend: Backend, plan: Plan, *, root: Path, say: Say, share: bool = False) -> Environment:
    """Boot an environment, and see that its tasks see what was planned.

    Args:
        backend: Where.
        plan: What.
        root: The project's directory.
        say: Receives progress.
        share: Whether another environment may hold the same GPUs.

    Raises:
        LabError: It did not come up, or a task sees other cards; nothing is left behind.
    """
    check: Check = lambda up: prove(up, plan, say)  # noqa: E731
    return backend.up(plan, root=root, say=say, check=check, share=share)


def prove(environment: Environment, plan: Plan, say: Say) -> None:
    """Compare what each task sees with the plan, and say in one line how it came out.

    Where neither the plan nor the box has a GPU, nobody is asked and nothing is said.

    Args:
        environment: The environment; it is up.
        plan: What it was booted from.
        say: Receives the line.

    Raises:
        LabError: A task sees other cards, or cannot use its own.
    """
    cards = box_cards() if environment.is_here else ()
    planned = {task.name: task.gpus for task in plan.tasks}
    if not cards and not any(planned.values()):
        return
    verdicts = judge(environment, planned, cards, tensorflow=True)
    _refuse_faults(verdicts)
    say(line({name: verdicts[name] for name in planned if name in verdicts}))


def judge(
    environment: Environment,
    planned: Mapping[str, tuple[str, ...]],
    cards: Sequence[Gpu],
    *,
    tensorflow: bool = False,
) -> dict[str, Verdict]:
    """What is known of each task's cards.

    Args:
        environment: The environment.
        planned: Task to device ids; who is not named (an anchor) was planned none.
        cards: The cards of this box.
        tensorflow: Whether TensorFlow is asked too, which takes seconds: only where a driver
            answers inside a task, and nothing speaks against the plan until then.
    """
    sights = environment.look(tensorflow=False)
    found = _verdicts(sights, planned, cards)
    answered = any(each.answered for each in sights.values())
    if tensorflow and answered and all(each.word.good for each in found.values()):
        again = environment.look(tensorflow=True)
        # A TensorFlow that does not answer in time takes back nothing of what others reported.
        known = {name: each for name, each in again.items() if each.environment is not None}
        found = _verdicts(sights | known, planned, cards)
    return found


def box_cards() -> tuple[Gpu, ...]:
    """The cards of this box; none where no driver answers."""
    try:
        return survey().gpus
    except NvmlError:
        return ()


def line(verdicts: Mapping[str, Verdict]) -> str:
    """One line for verdicts of which none speaks against the plan."""
    return "GPUs: " + ", ".join(_parts(verdicts))


def _verdicts(
    sights: Mapping[str, Sight], planned: Mapping[str, tuple[str, ...]], cards: Sequence[Gpu]
) -> dict[str, Verdict]:
    uuids = {str(card.index): card.device_id for card in cards if not card.is_slice}
    minors: dict[str, int] = {}
    for card in cards:
        # On some systems (WSL) there are no nodes, and so there are none in a container.
        if card.minor is not None and Path(f"/dev/nvidia{card.minor}").exists():
            minors[card.device_id] = card.minor
            minors[str(card.index)] = card.minor
    return {
        name: verdict(planned.get(name, ()), sight, minors, uuids) for name, sight in sights.items()
    }


def _refuse_faults(verdicts: Mapping[str, Verdict]) -> None:
    bad = {name: each for name, each in verdicts.items() if not each.word.good}
    if bad:
        (name, first), *others = bad.items()
        names = _names([other for other, _ in others])
        more = f" (nor {'are' if len(others) > 1 else 'is'} {names} as planned)" if others else ""
        raise LabError(f"{name}: {first.explanation}{more}", first.mend)


def _parts(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    holders = {name: each for name, each in verdicts.items() if each.planned}
    for word, how in ((Word.PROVED, "proved"), (Word.DECLARED, "declared only")):
        group = {name: each for name, each in holders.items() if each.word is word}
        if group:
            cards = len({card for each in group.values() for card in each.planned})
            first = next(iter(group.values()))
            why = ", ".join(first.sources)
            if word is Word.DECLARED:
                why = first.explanation.partition("; ")[2]
            yield f"{_count(cards, 'card')} of {_count(len(group), 'task')} {how} ({why})"
    unknown = [(name, each) for name, each in verdicts.items() if each.word is Word.UNKNOWN]
    for name, each in unknown[:1]:
        others = f" and {_count(len(unknown) - 1, 'other')}" if len(unknown) > 1 else ""
        yield f"{name}{others}: {each.explanation}"
    empty = {name: each for name, each in verdicts.items() if not each.planned}
    for word, one, several in (
        (Word.PROVED, "sees none", "see none"),
        (Word.DECLARED, "is told of none", "are told of none"),
    ):
        names = [name for name, each in empty.items() if each.word is word]
        if names:
            yield f"{_names(names)} {one if len(names) == 1 else several}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _names(names: Collection[str]) -> str:
    if len(names) > _MANY:
        return f"{len(names)} tasks"
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
