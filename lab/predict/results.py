"""Apply a run's saved model to its test set, or to the user's own picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lab.errors import InputError
from lab.formatting import counted
from lab.mnist import Floats, scaled
from lab.outputs import check_output, write_output
from lab.predict.image_grid import draw_grid, draw_one, is_picture
from lab.predict.network import MODEL, Network, Probabilities, network, saved_model, test_set
from lab.predict.prediction import Evaluation, Prediction, evaluate
from lab.predict.preprocess import read_picture
from lab.project import check_data_dir
from lab.saved_model import FILE, SavedModel
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo
from lab.store.summarize import summarize
from lab.text import visible

FIGURES: Final = "figures"
"""The directory of a run's figures, in the run's directory."""

# The order of a sum can change a prediction near a tie, but hardly more than two predictions.
_NEAR_TIES: Final = 2.5


@dataclass(frozen=True, slots=True)
class Model:
    """A run's model, ready to predict."""

    run: RunDir
    info: RunInfo
    saved: SavedModel
    network: Network

    @property
    def parameters(self) -> str:
        """The kind of parameters that the model uses."""
        return "moving averages" if self.network.averages else "final parameters"

    @property
    def headline(self) -> str:
        """The run and its model in one line."""
        updates = counted(self.saved.global_step, "update")
        trained = f"{self.info.spec.experiment}, {self.network.kind} after {updates}"
        return f"run {self.info.run_id}: {trained}"

    def to_json(self) -> dict[str, Any]:
        """Return the same as JSON, for a program."""
        return {
            "run_id": self.info.run_id,
            "experiment": self.info.spec.experiment,
            "model": self.network.kind,
            "global_step": self.saved.global_step,
            "parameters": self.parameters,
        }


@dataclass(frozen=True, slots=True)
class PicturePrediction:
    """The prediction for one picture.

    Attributes:
        model: The model.
        picture: The picture's file.
        image: The picture in the form that the model receives.
        probabilities: The probability of each digit.
        output: The figure that was written.
    """

    model: Model
    picture: Path
    image: Floats
    probabilities: Probabilities
    output: Path

    @property
    def predicted(self) -> int:
        """The most probable digit."""
        return int(self.probabilities.argmax())

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON, for a program."""
        return {
            **self.model.to_json(),
            "picture": str(self.picture),
            "predicted": self.predicted,
            "probabilities": self.probabilities.tolist(),
            "figure": str(self.output),
        }


@dataclass(frozen=True, slots=True)
class TestSetPrediction:
    """The predictions for a test set.

    Attributes:
        model: The model.
        evaluation: All predictions.
        recorded: The accuracy that the run recorded; None if it cannot be compared.
        answers: Index in the test set to prediction, of the images to show.
        output: The figure that was written; None if there is no image to show.
    """

    __test__ = False  # pytest must not collect this class as a test

    model: Model
    evaluation: Evaluation
    recorded: float | None
    answers: Mapping[int, Prediction]
    output: Path | None

    @property
    def headline(self) -> str:
        """The accuracy in one line."""
        return _accuracy(self.model, self.evaluation)

    @property
    def mismatch(self) -> str:
        """A note if the recorded accuracy differs from the model's; else ""."""
        if self.recorded is None:
            return ""
        accuracy = self.evaluation.accuracy
        if abs(accuracy - self.recorded) * len(self.evaluation.examples) <= _NEAR_TIES:
            return ""
        return (
            f"note: the run recorded an accuracy of {self.recorded:.4f}, but its model has"
            f" {accuracy:.4f} here: the test set or the model has changed since"
        )

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON, for a program."""
        return {
            **self.model.to_json(),
            "accuracy": self.evaluation.accuracy,
            "recorded_accuracy": self.recorded,
            "test_images": len(self.evaluation.examples),
            "digits": [
                {**asdict(score), "accuracy": score.accuracy} for score in self.evaluation.scores()
            ],
            "images": [
                {
                    "image": index,
                    "digit": answer.label,
                    "predicted": answer.predicted,
                    "probability": answer.probability,
                }
                for index, answer in self.answers.items()
            ],
            "figure": None if self.output is None else str(self.output),
        }


def predict_picture(
    run: RunDir, picture: Path, output: str | None, *, averages: bool, force: bool
) -> PicturePrediction:
    """Predict the digit of a picture, and draw a figure.

    Args:
        run: The run whose model predicts.
        picture: The picture.
        output: The figure's file; None: in the run's directory.
        averages: Use the moving averages of the parameters.
        force: Replace a file that lab did not write.

    Raises:
        InputError: The picture cannot be read, or the figure cannot be written there.
        LabError: The run has no model, or a damaged one.
    """
    image = read_picture(picture)
    if output is not None and Path(output).exists() and Path(output).samefile(picture):
        raise InputError(f"--output: {output} is the picture itself", "name another file")
    target = _output(output, run, "own.png", force=force)
    model = _model(run, averages=averages)
    probabilities = model.network.probabilities(image[None])[0]
    title = _title(model.headline, f"{picture.name}, as the model saw it")
    _write(target, draw_one(image, probabilities, title))
    return PicturePrediction(model, picture, image, probabilities, target)


def predict_test_set(
    run: RunDir,
    data_dir: str | None,
    output: str | None,
    *,
    count: int,
    seed: int,
    wrong: bool,
    averages: bool,
    force: bool,
) -> TestSetPrediction:
    """Predict all images of a test set, and draw some of them.

    Args:
        run: The run whose model predicts.
        data_dir: The test set; None: the run's.
        output: The figure's file; None: in the run's directory.
        count: The number of images to show.
        seed: Determines which images are drawn.
        wrong: Show only images whose digit the model predicts wrongly.
        averages: Use the moving averages of the parameters.
        force: Replace a file that lab did not write.

    Raises:
        InputError: The test set cannot be read, or the figure cannot be written there.
        LabError: The run has no model, or a damaged one.
    """
    target = _output(output, run, "digits.png", force=force)
    model = _model(run, averages=averages)
    given = check_data_dir(data_dir)
    evaluation = evaluate(model.network, test_set(model.info, given))
    own = given is None and not averages
    indices = evaluation.sample(count, seed, wrong=wrong)
    answers = {index: _answer(evaluation, index) for index in indices}
    if answers:
        title = _title(model.headline, _accuracy(model, evaluation))
        _write(target, draw_grid(list(answers.values()), title))
    return TestSetPrediction(
        model,
        evaluation,
        summarize(run).accuracy if own else None,
        answers,
        target if answers else None,
    )


def _model(run: RunDir, *, averages: bool) -> Model:
    info = run.read()
    saved = saved_model(run, info)
    source = str(run.path / MODEL / FILE)
    return Model(run, info, saved, network(saved, averages=averages, source=source))


def _output(given: str | None, run: RunDir, name: str, *, force: bool) -> Path:
    """Return the figure's file, which may be written."""
    if given is None:
        return run.path / FIGURES / name
    check_output("--output", Path(given), is_picture, force=force)
    return Path(given)


def _accuracy(model: Model, evaluation: Evaluation) -> str:
    images = f"{len(evaluation.examples):,} test images"
    return f"accuracy of the {model.parameters} on {images}: {evaluation.accuracy:.4f}"


def _answer(evaluation: Evaluation, index: int) -> Prediction:
    predicted = int(evaluation.predicted[index])
    return Prediction(
        image=scaled(evaluation.examples.pixels[index]),
        predicted=predicted,
        probability=float(evaluation.probabilities[index, predicted]),
        label=int(evaluation.examples.labels[index]),
    )


def _title(*lines: str) -> str:
    return "\n".join(map(visible, lines))


def _write(output: Path, figure: bytes) -> None:
    output.parent.mkdir(exist_ok=True)
    write_output(output, figure)
