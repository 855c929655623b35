"""Saved models compared with the oracle and with TensorFlow's records; a user's pictures."""

from __future__ import annotations

import io
import math
import os
import struct
import warnings
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from syrupy.assertion import SnapshotAssertion

from lab.errors import InputError, LabError
from lab.mnist import Examples, Floats, load_mnist, load_test
from lab.predict.network import Network, network, saved_model, softmax
from lab.predict.prediction import Evaluation, evaluate
from lab.predict.preprocess import read_picture
from lab.saved_model import SavedModel
from lab.text import visible
from tests import oracle
from tests.support.predicting import DIGITS, RECORDED, SEVEN, make_run, trained


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
        parameters={**saved.parameters, **changes.get("parameters", {})},
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


# ---- A user's picture: whatever its size and mode, it becomes an image like MNIST's

Pixels = npt.NDArray[np.uint8]

# Greys whose ratios are on no threshold, so that rounding decides nothing.
GREYS = (0, 60, 128, 200)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pictures") / "own.png"


def read(path: Path, image: Image.Image) -> Floats:
    image.save(path, "PNG")
    return read_picture(path)


@st.composite
def drawings(draw: st.DrawFn) -> Pixels:
    """Greys on white, with a white rim and something black."""
    shape = draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    inner = draw(arrays.arrays(np.uint8, shape, elements=st.sampled_from((*GREYS, 255, 255, 255))))
    inner[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = 0
    return np.pad(inner, draw(st.integers(1, 9)), constant_values=255)


def box(field: Floats) -> Floats:
    """The part of a field that is drawn."""
    image = field.reshape(28, 28)
    rows, columns = np.flatnonzero(image.any(1)), np.flatnonzero(image.any(0))
    return image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


@given(drawings())
def test_size_is_mnists(scratch: Path, drawing: Pixels) -> None:
    field = read(scratch, Image.fromarray(drawing))
    assert field.shape == (784,)
    assert field.dtype == np.float32
    assert 0 <= field.min() < field.max() <= 1
    drawn = box(field)
    assert max(drawn.shape) == 20
    image = field.reshape(28, 28)
    for axis in (0, 1):
        mass = image.sum(axis=1 - axis)
        centre = (mass * np.arange(28)).sum() / mass.sum()
        places = np.flatnonzero(mass)
        # In the middle, unless the box would leave the field.
        assert abs(centre - 14) < 0.5001 or places[0] == 0 or places[-1] == 27


@given(drawings(), st.integers(0, 30), st.integers(0, 30))
def test_where_it_is_drawn_does_not_matter(
    scratch: Path, drawing: Pixels, above: int, beside: int
) -> None:
    moved = np.pad(drawing, ((above, 0), (0, beside)), constant_values=255)
    here, there = read(scratch, Image.fromarray(drawing)), read(scratch, Image.fromarray(moved))
    assert np.array_equal(here, there)


@given(drawings(), st.integers(1, 3))
def test_rotation_rotates_the_image(scratch: Path, drawing: Pixels, quarters: int) -> None:
    upright = read(scratch, Image.fromarray(drawing))
    turned = read(scratch, Image.fromarray(np.rot90(drawing, quarters).copy()))
    np.testing.assert_allclose(box(turned), np.rot90(box(upright), quarters), atol=1e-5)


def in_mode(drawing: Pixels, mode: str) -> Image.Image:
    grey = Image.fromarray(drawing)
    ink = Image.fromarray(255 - drawing)
    match mode:
        case "light on dark":
            return ink
        case "I;16":
            return Image.fromarray(drawing.astype(np.uint16) * 257)
        case "black on nothing" | "white on nothing":
            colour = 0 if mode.startswith("black") else 255
            layer = Image.new("L", grey.size, colour)
            return Image.merge("LA", (layer, ink)).convert("RGBA")
        case _:
            return grey.convert(mode)


@pytest.mark.parametrize(
    "mode",
    ["light on dark", "LA", "P", "RGB", "RGBA", "I;16", "black on nothing", "white on nothing"],
)
@given(drawing=drawings())
@settings(max_examples=25)
def test_its_mode_does_not_matter(scratch: Path, mode: str, drawing: Pixels) -> None:
    expected = read(scratch, Image.fromarray(drawing))
    np.testing.assert_allclose(read(scratch, in_mode(drawing, mode)), expected, atol=0.01)


def test_a_ground_that_cannot_be_seen(scratch: Path) -> None:
    drawing = np.full((60, 60), 255, np.uint8)
    drawing[10:50, 25:32] = 0
    expected = read(scratch, Image.fromarray(drawing))
    palette = Image.fromarray(drawing).quantize(8)  # white is the entry that cannot be seen
    palette.save(scratch, "PNG", transparency=palette.getpixel((0, 0)))
    np.testing.assert_allclose(read_picture(scratch), expected, atol=0.01)
    opacity = np.full((60, 60), 255, np.uint8)  # clear corners of an opaque picture
    opacity[:6, :6] = opacity[-6:, -6:] = 0
    image = Image.merge("LA", (Image.fromarray(drawing), Image.fromarray(opacity)))
    assert np.array_equal(read(scratch, image), expected)


# ---- Predictions of a model


def test_a_digit_of_the_test_set_is_classified_as_directly(
    scratch: Path, test_images: Examples
) -> None:
    """As a picture seven times as large, dark on light, outside the middle."""
    some = test_images.images[:300]
    fields = []
    for pixels in some:
        grey = (255 - pixels.reshape(28, 28) * 255).round().astype(np.uint8)
        large = grey.repeat(7, axis=0).repeat(7, axis=1)
        moved = np.pad(large, ((40, 3), (0, 100)), constant_values=255)
        fields.append(read(scratch, Image.fromarray(moved).convert("RGB")))
    model = answering(trained())
    direct, through_a_file = model.logits(some).argmax(1), model.logits(np.stack(fields)).argmax(1)
    # The way there and back smooths a little, and some answers were on the brink.
    assert (direct == through_a_file).mean() >= 0.97


def test_a_noisy_photograph(scratch: Path) -> None:
    clean = np.asarray(Image.open(SEVEN).convert("L").resize((800, 1000)), np.float64)
    noise = np.random.default_rng(0).normal(0, 6, clean.shape)
    photograph = (120 + clean / 4 + noise).clip(0, 255).astype(np.uint8)
    field = read(scratch, Image.fromarray(photograph))
    assert answering(trained()).logits(field[None]).argmax() == 7
    # The ground is as empty as without noise.
    assert np.count_nonzero(field) <= np.count_nonzero(read_picture(SEVEN))


# ---- Invalid pictures


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(*chunks: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def header(width: int, height: int, depth: int = 8, colour: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        read_picture(path)
    name = visible(str(path))
    assert str(caught.value).startswith(f"{name}: ")
    return str(caught.value).removeprefix(f"{name}: ")


END = chunk(b"IEND", b"")
PIXELS = chunk(b"IDAT", zlib.compress(b"\0" + b"\x80" * 4))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is not a PNG; give a PNG with one digit on it"),
        (SEVEN.read_bytes()[:400], "is damaged (image file is truncated"),
        (SEVEN.read_bytes().replace(b"IDAT", b"IDOT"), "is not a PNG"),
        (png(header(60_000, 60_000), END), "the picture is too large; give one of at most 25,000"),
        (png(header(6_000, 6_000), END), "the picture is too large (6000 x 6000 pixels)"),
        (png(header(0, 5), END), "is"),
        # A palette picture without its palette, and a colour profile that ends at once.
        (png(header(4, 1, colour=3), PIXELS, END), "is damaged"),
        (png(header(4, 1), PIXELS, chunk(b"iCCP", b"x"), END), "is damaged"),
        (png(header(4, 1), PIXELS, END), "the picture is blank; draw one digit on it"),
    ],
)
def test_invalid_pictures(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "own.png"
    path.write_bytes(content)
    assert refused(path).startswith(expected)


def test_a_blank_picture(scratch: Path) -> None:
    noise = np.random.default_rng(0).integers(100, 140, (200, 200), np.uint8)
    blank = [Image.new("RGBA", (40, 30), colour) for colour in
             ((0, 0, 0, 0), (255, 255, 255, 255), (9, 9, 9, 80))]  # fmt: skip
    for image in (*blank, Image.fromarray(noise)):
        image.save(scratch)
        assert refused(scratch).startswith("the picture is blank")


def test_not_a_file(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.png").startswith("cannot be read (No such file or directory)")
    assert refused(tmp_path).startswith("is a directory")
    os.mkfifo(tmp_path / "pipe.png")
    assert refused(tmp_path / "pipe.png").startswith("is not a regular file")  # and does not wait
    assert refused(Path("/dev/zero")).startswith("is not a regular file")
    (tmp_path / "loop.png").symlink_to("loop.png")
    assert refused(tmp_path / "loop.png").startswith("cannot be read (")
    with pytest.raises(InputError, match=r"x… \(\d+ characters\) cannot be read \("):
        read_picture(tmp_path / ("x" * 300))
    assert "null" in refused(tmp_path / "a\0b")


@given(
    mode=st.sampled_from(["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]),
    size=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    seed=st.integers(0, 999),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    data=st.data(),
)
def test_any_bytes_give_a_digit_or_one_line(
    scratch: Path,
    mode: str,
    size: tuple[int, int],
    seed: int,
    changes: list[tuple[int, int]],
    data: st.DataObject,
) -> None:
    random = np.random.default_rng(seed)
    shape = size[::-1]
    image = (
        Image.fromarray(random.integers(0, 65536, shape, np.uint16))
        if mode == "I;16"
        else Image.fromarray(random.integers(0, 256, shape, np.uint8)).convert(mode)
    )
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    content = bytearray(buffer.getvalue())
    for place, byte in changes:
        content[place % len(content)] = byte
    cut = data.draw(st.none() | st.integers(0, len(content)))
    scratch.write_bytes(content[:cut])
    try:
        field = read_picture(scratch)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert field.shape == (784,)
        assert 0 <= field.min() < field.max() <= 1
