"""A question to a run's model, and how it is answered: on the terminal, as JSON, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from lab.cli.output import print_json, say
from lab.errors import InputError
from lab.outputs import check_output, write_output
from lab.predict.image_grid import draw_grid, draw_one, is_picture
from lab.predict.network import Network
from lab.predict.picture import read_picture
from lab.predict.prediction import Answer, Evaluation, evaluate
from lab.predict.source import answering, saved_model, test_set
from lab.predict.terminal import Screen, scores_table
from lab.run.directory import RunDir, RunInfo, find_run, runs_dir
from lab.run.project import check_data_dir
from lab.run.summary import summarize
from lab.task.data import Floats, scaled
from lab.task.model import SavedModel
from lab.task.text import visible

FIGURES: Final = "figures"
"""The directory of a run's pictures, in the run's own."""

# Sums in another order may turn an answer that was on the brink, but hardly more of them.
_ON_THE_BRINK: Final = 2.5


@dataclass(frozen=True, slots=True)
class Question:
    """What the user asks; the attributes are the flags of `lab predict`."""

    run: str
    image: str | None
    count: int
    seed: int
    wrong: bool
    averages: bool
    data_dir: str | None
    output: str | None
    force: bool
    json: bool
    runs_dir: str | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A run that can answer."""

    run: RunDir
    info: RunInfo
    saved: SavedModel
    network: Network

    @property
    def name(self) -> str:
        """Which parameters answer."""
        return "moving averages" if self.network.averages else "final parameters"

    @property
    def headline(self) -> str:
        """The run and its model, in one line."""
        updates = f"{self.saved.global_step:,} updates"
        return (
            f"run {self.info.run_id}: {self.info.experiment}, {self.network.kind} after {updates}"
        )

    def as_json(self) -> dict[str, Any]:
        """The same for a program."""
        return {
            "run_id": self.info.run_id,
            "experiment": self.info.experiment,
            "model": self.network.kind,
            "global_step": self.saved.global_step,
            "parameters": self.name,
        }


def ask(question: Question) -> None:
    """Answer, and write a picture.

    Raises:
        InputError: The run, the picture or the test set cannot be found or read.
        LabError: The run saved no model, or a damaged one.
    """
    run = find_run(question.run, runs_dir(question.runs_dir))
    info = run.read()
    own = None if question.image is None else Path(question.image)
    image = None if own is None else read_picture(own)
    output = _output(question.output, run, own, force=question.force)
    saved = saved_model(run, info)
    network = answering(run, saved, averages=question.averages)
    asked = _Asked(run, info, saved, network)
    if own is None or image is None:
        _ask_about_test_set(question, asked, output)
    else:
        _ask_about_picture(asked, own, image, output, json=question.json)


def _output(given: str | None, run: RunDir, own: Path | None, *, force: bool) -> Path:
    """Where the picture goes."""
    if given is None:
        return run.path / FIGURES / ("digits.png" if own is None else "own.png")
    path = Path(given)
    if own is not None and path.exists() and path.samefile(own):
        raise InputError(f"--output: {path} is your own picture", "name another file")
    check_output("--output", path, is_picture, force=force)
    return path


def _ask_about_test_set(question: Question, asked: _Asked, output: Path) -> None:
    given = check_data_dir(question.data_dir)
    examples = test_set(asked.info, given)
    evaluation = evaluate(asked.network, examples)
    recorded = None
    if given is None and not asked.network.averages:
        recorded = summarize(asked.run).accuracy
    _compare(evaluation, recorded)
    places = evaluation.some(question.count, question.seed, wrong=question.wrong)
    answers = [_answer(evaluation, place) for place in places]
    accuracy = f"accuracy of the {asked.name} on {len(examples):,} test images"
    figure = None
    if answers:
        title = _title(asked.headline, f"{accuracy}: {evaluation.accuracy:.4f}")
        figure = _write(output, draw_grid(answers, title))
    if question.json:
        _print_evaluation(asked, evaluation, recorded, places, figure)
        return
    screen = Screen()
    screen.show(Text(visible(asked.headline)))
    beside = "" if recorded is None else f"  (the run recorded {recorded:.4f})"
    screen.show(Text(f"{accuracy}: {evaluation.accuracy:.4f}{beside}"), Text())
    screen.show(scores_table(evaluation.scores()), Text())
    if answers:
        screen.digits(answers, places)
        say(f"{len(answers)} digits: {output}")
    else:
        say("the model takes no image for another digit: there is nothing to show")


def _ask_about_picture(
    asked: _Asked, path: Path, image: Floats, output: Path, *, json: bool
) -> None:
    probabilities = asked.network.probabilities(image[None])[0]
    predicted = int(probabilities.argmax())
    title = _title(asked.headline, f"{path.name}, as the model saw it")
    figure = _write(output, draw_one(image, probabilities, title))
    if json:
        print_json(
            {
                **asked.as_json(),
                "picture": str(path),
                "predicted": predicted,
                "probabilities": probabilities.tolist(),
                "figure": figure,
            }
        )
        return
    screen = Screen()
    screen.show(Text(visible(asked.headline)))
    screen.show(Text(visible(f"{path}: {predicted}"), "bold"), Text())
    screen.picture(image, probabilities)
    say(f"what the model saw: {output}")


def _compare(evaluation: Evaluation, recorded: float | None) -> None:
    """Say so when the run saw another accuracy than its model has here."""
    if recorded is None:
        return
    images = abs(evaluation.accuracy - recorded) * len(evaluation.examples)
    if images > _ON_THE_BRINK:
        say(
            f"note: the run recorded an accuracy of {recorded:.4f}, its model has "
            f"{evaluation.accuracy:.4f} here: the test set or the model is not the run's"
        )


def _answer(evaluation: Evaluation, place: int) -> Answer:
    predicted = int(evaluation.predicted[place])
    return Answer(
        image=scaled(evaluation.examples.pixels[place]),
        predicted=predicted,
        probability=float(evaluation.probabilities[place, predicted]),
        label=int(evaluation.examples.labels[place]),
    )


def _title(*lines: str) -> str:
    return "\n".join(visible(line) for line in lines)


def _write(output: Path, data: bytes) -> str:
    """Write a picture and return its path."""
    output.parent.mkdir(exist_ok=True)
    write_output(output, data)
    return str(output)


def _print_evaluation(
    asked: _Asked,
    evaluation: Evaluation,
    recorded: float | None,
    places: Sequence[int],
    figure: str | None,
) -> None:
    answers = {place: _answer(evaluation, place) for place in places}
    print_json(
        {
            **asked.as_json(),
            "accuracy": evaluation.accuracy,
            "recorded_accuracy": recorded,
            "test_images": len(evaluation.examples),
            "digits": [
                {**asdict(score), "accuracy": score.accuracy} for score in evaluation.scores()
            ],
            "images": [
                {
                    "image": place,
                    "digit": answer.label,
                    "predicted": answer.predicted,
                    "probability": answer.probability,
                }
                for place, answer in answers.items()
            ],
            "figure": figure,
        }
    )
