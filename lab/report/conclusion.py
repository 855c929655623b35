"""The head of a report: its title, its conclusion, and the warning about unequal lengths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from lab.formatting import counted, seconds, whole
from lab.plots.data import grouped
from lab.report.loader import ReportRun
from lab.statistics import mean_of
from lab.store.summary import first_divergence
from lab.text import clipped
from lab.volume.states import State

_NAMED: Final = 4  # the most groups, runs or labels that are named
_LETTERS: Final = 60  # the longest name in a sentence
_EQUAL: Final = 0.02  # lengths that differ by less are equal: workers end a few steps apart
_SAME_TIME: Final = 1.05  # a smaller ratio of two times is not worth a claim

_STEPS: Final = "global steps"
_EPOCHS: Final = "epochs"
_IMAGES: Final = "images seen"

_VERBS: Final[Mapping[str, str]] = {
    State.FAILED: "failed",
    State.LOST: "was lost",
    State.CANCELLED: "was cancelled",
}


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What the runs of a report show.

    Attributes:
        sentence: One sentence.
        cautions: The limits of this sentence, a sentence each.
    """

    sentence: str
    cautions: Sequence[str] = ()

    def __str__(self) -> str:
        """Return all sentences."""
        return " ".join([self.sentence, *self.cautions])


def title(runs: Sequence[ReportRun]) -> str:
    """Return the title of a report: its experiments, and the names or the number of its runs."""
    experiments = _listed(dict.fromkeys(each.info.spec.experiment for each in runs))
    if len(runs) == 1:
        name = clipped(runs[0].name, _LETTERS)
        return f"{experiments}: {name}" if runs[0].label else f"{experiments}: run {name}"
    labels = dict.fromkeys(each.prefix or each.label for each in runs)
    names = _listed(labels) if all(labels) else ""
    if not names and len(runs) == 2:  # noqa: PLR2004
        names = _listed(each.name for each in runs)
    return f"{experiments}: {counted(len(runs), 'run')}" + (f" ({names})" if names else "")


def conclude(runs: Sequence[ReportRun]) -> Conclusion:
    """Return what the runs show, as text without control characters.

    Accuracies and times of several runs are means over the runs of a group that succeeded.

    Args:
        runs: One or several runs.
    """
    if len(runs) == 1:
        return Conclusion(_of_one(runs[0]))
    results = {
        name: known
        for name, several in grouped(runs).items()
        if (known := [each for each in several if each.accuracy is not None])
    }
    used = list(chain.from_iterable(results.values()))
    if not used:
        groups = _listed(grouped(runs))
        return Conclusion(f"None of the {len(runs)} runs of {groups} ended with a valid accuracy.")
    parts = [_accuracies(results), _times(results) if len(results) > 1 else ""]
    return Conclusion(f"{'; '.join(filter(None, parts))}.", _cautions(runs, results, used))


def unequal_lengths(runs: Sequence[ReportRun]) -> str:
    """Return the warning that runs differ in length, and what is comparable; "" if they do not.

    Args:
        runs: One or several runs; those without steps are ignored.
    """
    ranges = {
        name: (min(known), max(known))
        for name, values in _lengths(runs).items()
        if len(known := [value for value in values if value]) > 1
    }
    unequal = [name for name, limits in ranges.items() if _differ(*limits)]
    if not unequal:
        return ""
    listed = "; ".join(f"{name}: {low:,.0f} to {high:,.0f}" for name, (low, high) in ranges.items()
                       if name in unequal)  # fmt: skip
    begin = f"The runs have different lengths ({listed})."
    if _IMAGES in ranges and _IMAGES not in unequal:
        return (
            f"{begin} They saw equally many images: {ranges[_IMAGES][1]:,.0f}. Compare their final"
            " accuracy, their time, and their losses by images seen. Do not compare them at equal"
            " global steps."
        )
    return (
        f"{begin} Do not compare their final accuracy and their whole time. Compare the curves of"
        " the loss at equal positions, the images per second, and the staleness."
    )


def _of_one(run: ReportRun) -> str:
    """Return the conclusion about one run."""
    summary, state = run.summary, run.info.state
    subject = f"{clipped(run.label, _LETTERS)}: {_subject(run)}" if run.label else _subject(run)
    step = _reached(run)
    after = "" if summary.wall_s is None else f" after {seconds(summary.wall_s)}"
    diverged = first_divergence(run.summary.tasks)
    tail = "" if diverged is None else f"; from step {whole(diverged)} on, a loss is not finite"
    if not state.ended:
        return f"{subject} has not ended: it is {state.value}{step}{tail}."
    if state is not State.SUCCEEDED:
        return f"{subject} {_VERBS[state]}{step}{after}{tail}."
    if diverged is not None:
        return f"{subject} diverged: from step {whole(diverged)} on, a loss is not finite."
    accuracy = run.accuracy
    if accuracy is not None:
        main = f"{subject} reached an accuracy of {_percent(accuracy)}{step}{after}"
    elif run.info.spec.own:
        last = [task.accuracy for task in run.summary.tasks if task.accuracy is not None]
        main = f"{subject} succeeded{step}{after}"
        main += f"; the last accuracy is {_percent(last[0])}" if last else ""
    elif step:
        main = f"{subject} succeeded{step}{after}, and recorded no accuracy of the final parameters"
    else:
        main = f"{subject} succeeded{after}, and recorded no step"
    return "; ".join([main, *_checks(run)]) + "."


def _reached(run: ReportRun) -> str:
    """Return the last step, or else the last epoch: ` at step 1,200`; "" if none is recorded."""
    if run.summary.global_step is not None:
        return f" at step {whole(run.summary.global_step)}"
    epochs = [task.epoch for task in run.summary.tasks if task.epoch is not None]
    return f" at epoch {max(epochs) + 1}" if epochs else ""


def _checks(run: ReportRun) -> list[str]:
    """Return a clause for each check of a run that succeeded."""
    summary = run.summary
    wrong = sum(not each.as_expected for each in summary.results)
    found = []
    if summary.updates_conserved is not None:
        found.append(f"{'every' if summary.updates_conserved else 'not every'} update was counted")
    if wrong:
        found.append(f"{wrong} of {counted(len(summary.results), 'result')} not as expected")
    elif summary.results:
        found.append("all results are as expected")
    if summary.degraded:
        found.append("some of its tasks did not succeed")
    return found


def _subject(run: ReportRun) -> str:
    """Return the experiment of a run with the number of its workers: `async with 3 workers`."""
    info = run.info
    tasks = [task for task in info.task_names() if not info.spec.is_service(task)]
    noun = "worker" if all(task.startswith("worker-") for task in tasks) else "task"
    size = f" with {counted(len(tasks), noun)}" if tasks else ""
    return f"{clipped(info.spec.experiment, _LETTERS)}{size}"


def _accuracies(results: Mapping[str, Sequence[ReportRun]]) -> str:
    """Return the clause about the accuracy of each group, the highest first."""
    means = {
        name: mean
        for name, several in results.items()
        if (mean := mean_of(each.accuracy for each in several)) is not None
    }
    ranked = sorted(means, key=lambda name: -means[name].value)
    if len(ranked) > _NAMED:
        first, last = ranked[-1], ranked[0]
        return (
            f"The accuracies of {len(ranked)} groups are from {_percent(means[first].value)}"
            f" ({_short(first)}) to {_percent(means[last].value)} ({_short(last)})"
        )
    counts = {len(results[name]) for name in ranked}
    texts = {}
    for name, mean in means.items():
        half = "" if mean.half is None else f" ± {100 * mean.half:.1f} percentage points"
        runs = f" ({counted(len(results[name]), 'run')})" if len(counts) > 1 else ""
        texts[name] = f"{_percent(mean.value)}{half}{runs}"
    first, *others = ranked
    found = [f"{_short(first)} reached an accuracy of {texts[first]}"]
    found += [f"{_short(name)} {texts[name]}" for name in others]
    repeats = max(counts)
    if repeats == 1:
        return ", ".join(found)
    of = f" of {repeats} runs" + (" each" if others else "") if len(counts) == 1 else ""
    plural = "s" if others else ""
    return f"{', '.join(found)} (mean{plural}{of}, 95% interval{plural})"


def _times(results: Mapping[str, Sequence[ReportRun]]) -> str:
    """Return the clause about the wall time of several groups; "" if one is not known."""
    times = {}
    for name, several in results.items():
        mean = mean_of(each.summary.wall_s or None for each in several)
        if mean is None:
            return ""
        times[name] = mean.value
    slow, fast = max(times, key=times.__getitem__), min(times, key=times.__getitem__)
    ratio = times[slow] / times[fast]
    if ratio < _SAME_TIME:
        return "their wall times are about equal"
    if len(times) > 2:  # noqa: PLR2004
        return f"their wall times are from {seconds(times[fast])} to {seconds(times[slow])}"
    return f"{_short(slow)} took {ratio:.1f} times as long"


def _cautions(
    runs: Sequence[ReportRun],
    results: Mapping[str, Sequence[ReportRun]],
    used: Sequence[ReportRun],
) -> list[str]:
    """Return the limits of a conclusion about several runs."""
    found = []
    others = len(runs) - len(used)
    if others:
        verb = "is" if others == 1 else "are"
        found.append(
            f"{others} of the {len(runs)} runs {verb} not included: no valid final accuracy."
        )
    if len(results) < 2:  # noqa: PLR2004
        return found
    images = [value for value in _lengths(used)[_IMAGES] if value]
    if len(images) < len(used):
        found.append("The number of images that each run saw is not known.")
    elif _differ(min(images), max(images)):
        found.append("The runs saw different numbers of images.")
    if all(len(several) == 1 for several in results.values()):
        found.append("Each group has one run, so this does not show that one is better.")
    elif any(len(several) == 1 for several in results.values()):
        found.append("Some groups have one run, so this does not show that one is better.")
    else:
        found.append("No test of the differences was made.")
    return found


def _lengths(runs: Sequence[ReportRun]) -> Mapping[str, Sequence[float | None]]:
    """Return the lengths of each run, in several units; None if one is not known."""
    return {
        _STEPS: [each.summary.global_step for each in runs],
        _EPOCHS: [
            max((1 + task.epoch for task in each.summary.tasks if task.epoch is not None),
                default=None)
            for each in runs
        ],
        _IMAGES: [_images(each) for each in runs],
    }  # fmt: skip


def _images(run: ReportRun) -> float | None:
    """Return the images that all workers saw, also after their last step records."""
    steps, workers = run.trace.steps, run.trace.workers
    recorded = steps.groupby("task")["local_step"].max().sum()
    made = sum(task.local_step or 0 for task in run.summary.tasks if task.task in workers)
    factor = made / recorded if 0 < recorded < made else 1.0
    return max((factor * seen for seen in run.trace.values("images")), default=None)


def _differ(low: float, high: float) -> bool:
    return high - low > _EQUAL * high


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _short(name: str) -> str:
    """Return a name for a sentence; one with a comma is quoted, as in `'async, epochs 2'`."""
    cut = clipped(name, _LETTERS)
    return f"'{cut}'" if "," in cut else cut


def _listed(names: Iterable[str]) -> str:
    """Return up to four names, and the number of the others."""
    every = [_short(name) for name in names]
    more = len(every) - _NAMED
    return ", ".join(every[:_NAMED]) + (f" and {more} more" if more > 0 else "")
