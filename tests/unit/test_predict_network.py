"""The forward passes of saved models, compared with the oracle and with TensorFlow's records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from lab.errors import InputError, LabError
from lab.predict.model_loader import saved_model
from lab.predict.network import Network, network, softmax
from lab.predict.prediction import Evaluation, evaluate
from lab.task.sdk.data import Examples, load_mnist, load_test
from lab.task.sdk.model import SavedModel
from tests import oracle
from tests.support.predicting import DIGITS, RECORDED, make_run, trained


@pytest.fixture(scope="module")
def test_images() -> Examples:
    return load_test()


def answering(saved: SavedModel, *, averages: bool = False) -> Network:
    return network(saved, averages=averages, source="model.npz")


def test_the_accuracy_is_the_one_that_tensorflow_recorded(test_images: Examples) -> None:
    evaluation = evaluate(answering(trained()), test_images)
    assert evaluation.accuracy == pytest.approx(RECORDED, abs=1e-6)
    assert np.array_equal(test_images.images, load_mnist().test.images)


@pytest.mark.parametrize("model", ["softmax", "mlp"])
def test_digits_are_the_oracles(model: str, test_images: Examples) -> None:
    parameters = oracle.initial_parameters(model, seed=3)
    averages = oracle.initial_parameters(model, seed=4)
    for name in parameters:  # Biases that are 0 could be left out unseen.
        parameters[name] += np.float32(0.01)
    saved = SavedModel(model, 1, parameters, averages)
    for known, wants_averages in ((parameters, False), (averages, True)):
        asked = answering(saved, averages=wants_averages)
        np.testing.assert_allclose(
            asked.logits(test_images.images[:100]),
            oracle.logits(known, test_images.images[:100]),
            rtol=1e-5,
            atol=1e-5,
        )
        expected = oracle.accuracy(known, test_images)
        assert evaluate(asked, test_images).accuracy == pytest.approx(expected, abs=2.5e-4)


def test_probabilities_by_hand_and_of_large_logits() -> None:
    shares = softmax(np.log(np.array([[1, 2, 5]], np.float32)))
    assert shares[0] == pytest.approx([0.125, 0.25, 0.625])
    large = np.array([[-(2.0**99), 2.0**99, 0], [2.0**99, 2.0**99, 1]], np.float32)
    assert softmax(large) == pytest.approx(np.array([[0, 1, 0], [0.5, 0.5, 0]]))


def damaged(**changes: object) -> SavedModel:
    saved = trained()
    return SavedModel(
        model=str(changes.get("model", saved.model)),
        global_step=1,
        parameters={**saved.parameters, **changes.get("parameters", {})},  # type: ignore[dict-item]
        averages={},
    )


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


WRONG = {
    "an unknown kind": damaged(model="cnn"),
    "another kind": damaged(model="mlp"),
    "nine classes": damaged(parameters={"weights": zeros(784, 9)}),
    "a matrix": damaged(parameters={"biases": zeros(10, 1)}),
    "texts": damaged(parameters={"biases": np.array(["a"] * 10)}),
    "two hidden sizes": SavedModel("mlp", 1, {
        "weights1": zeros(784, 5), "biases1": zeros(5), "weights2": zeros(4, 10),
        "biases2": zeros(10)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_model_with_wrong_shapes(name: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(LabError) as caught:
        answering(WRONG[name])
    assert str(caught.value) == snapshot


def test_softmax_has_no_averages() -> None:
    with pytest.raises(InputError, match="softmax model has no moving averages; leave out --av"):
        answering(trained(), averages=True)


@pytest.mark.parametrize("value", [math.nan, math.inf, 3e38])
def test_a_training_that_diverged(value: float, test_images: Examples) -> None:
    weights = np.full((784, 10), value, np.float32)
    with pytest.raises(LabError, match="train again with a smaller --learning_rate: the training"):
        evaluate(answering(damaged(parameters={"weights": weights})), test_images)


@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Bytes in the directories of the archive, where its readers trip; the arrays have sums."""
    content = bytearray((DIGITS / "model/model.npz").read_bytes())
    directory = content.index(b"PK\x01\x02")
    places = st.integers(directory, len(content) - 1) | st.integers(0, 400)
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=5)):
        content[place] = byte
    cut = data.draw(st.none() | st.integers(0, len(content)))
    run = make_run(tmp_path_factory.mktemp("runs"), trained())
    (run.path / "model/model.npz").write_bytes(content[:cut])
    try:
        answering(saved_model(run, run.read()))
    except LabError as error:
        assert "\n" not in str(error)


# ---- Figures of an evaluation


def evaluation(labels: list[int], predicted: list[int]) -> Evaluation:
    pixels = np.zeros((len(labels), 784), np.uint8)
    examples = Examples(pixels, np.array(labels, np.int32))
    return Evaluation(examples, np.array(predicted), np.zeros((len(labels), 10)))


def test_scores_of_each_digit() -> None:
    found = evaluation([1, 1, 1, 1, 2, 3], [1, 7, 7, 4, 2, 2])
    assert found.accuracy == pytest.approx(2 / 6)
    one, two, three = found.scores()[1:4]
    assert (one.images, one.right, one.mistaken_for, one.mistakes) == (4, 1, 7, 2)
    assert (two.accuracy, two.mistaken_for, two.mistakes) == (1.0, None, 0)
    assert (three.accuracy, three.mistaken_for) == (0.0, 2)
    assert found.scores()[0].accuracy is None


def test_some_images_are_drawn_by_the_seed() -> None:
    found = evaluation([1] * 50, [1, 7] * 25)
    first = found.sample(10, 5, wrong=False)
    assert first == found.sample(10, 5, wrong=False) == sorted(set(first))
    assert first != found.sample(10, 6, wrong=False)
    assert all(place % 2 for place in found.sample(10, 5, wrong=True))
    assert found.sample(100, 5, wrong=True) == list(range(1, 50, 2))
    assert evaluation([1], [1]).sample(3, 0, wrong=True) == []
