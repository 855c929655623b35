"""`lab predict`: its output, its images, and its refusals."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from syrupy.assertion import SnapshotAssertion

from lab.cli import main
from lab.predict.image_grid import draw_grid
from lab.predict.prediction import Prediction, most_probable, percent
from lab.saved_model import SavedModel
from lab.store.directory import RunDir
from lab.volume.states import State
from tests import oracle
from tests.support.agents import PATIENCE_S
from tests.support.cli import on_a_terminal
from tests.support.predicting import RECORDED, SEVEN, make_run, trained


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run store, beside which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAB_RUNS_DIR", raising=False)
    return tmp_path / "runs"


@pytest.fixture
def run(store: Path) -> RunDir:
    return make_run(store, trained(), RECORDED)


def predict(*arguments: str) -> int:
    return main(["predict", *arguments])


def output(capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    captured = capsys.readouterr()
    return captured.out, captured.err


# ---- The test set


def test_the_test_set_as_a_table_and_as_json(
    run: RunDir, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    assert predict("last", "--wrong", "--count", "3") == 0
    out, err = output(capsys)
    assert [line.rstrip() for line in out.splitlines()] == snapshot
    assert "test images: 0.8923  (the run recorded 0.8923)" in out
    assert len(re.findall(r"wrong\s*$", out, re.MULTILINE)) == 3
    assert err == f"3 digits: runs/{run.run_id}/figures/digits.png\n"
    assert predict("last", "--json", "--count=5", "--seed=3") == 0
    answer = json.loads(output(capsys)[0])
    assert answer["accuracy"] == pytest.approx(answer["recorded_accuracy"], abs=1e-6)
    assert sum(score["right"] for score in answer["digits"]) == round(10_000 * RECORDED)
    assert sum(score["images"] for score in answer["digits"]) == answer["test_images"] == 10_000
    assert len(answer["images"]) == 5
    Image.open(answer["figure"]).verify()
    del answer["digits"], answer["images"], answer["accuracy"]
    assert answer == snapshot


@pytest.mark.parametrize(("recorded", "noted"), [(RECORDED + 0.0002, False), (0.5, True)])
def test_a_run_of_other_parameters_is_noticed(
    store: Path, capsys: pytest.CaptureFixture[str], recorded: float, noted: bool
) -> None:
    make_run(store, trained(), recorded)
    predict("last", "--count=1")
    note = "note: the run recorded an accuracy of 0.5000, but its model has 0.8923"
    assert (note in output(capsys)[1]) is noted


def test_moving_averages(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(store, SavedModel("mlp", 5, *(oracle.initial_parameters("mlp", n) for n in (1, 2))))
    for flag, name in (("--averages", "moving averages"), ("--no-averages", "final parameters")):
        assert predict("last", flag, "--json", "--count=1") == 0
        assert json.loads(output(capsys)[0])["parameters"] == name


def write_test_set(directory: Path, labels: bytes) -> None:
    """Black images with these labels, in the IDX format."""
    directory.mkdir()
    count = len(labels)
    images = struct.pack(">4I", 0x0803, count, 28, 28) + bytes(784 * count)
    (directory / "t10k-images-idx3-ubyte").write_bytes(images)
    marked = struct.pack(">2I", 0x0801, count) + labels
    (directory / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(marked))


def constant(digit: int) -> SavedModel:
    """A model that takes everything for one digit."""
    biases = np.eye(10, dtype=np.float32)[digit]
    weights = np.zeros((784, 10), np.float32)
    return SavedModel("softmax", 1, {"weights": weights, "biases": biases}, {})


def test_a_run_is_tested_on_its_own_data(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test_set(store.parent / "mine", b"\3\3\3\4")
    make_run(store, constant(3), 0.75, data_dir=str(store.parent / "mine"))
    assert predict("last", "--json") == 0
    answer = json.loads(output(capsys)[0])
    assert (answer["accuracy"], answer["test_images"], len(answer["images"])) == (0.75, 4, 4)
    write_test_set(store.parent / "others", b"\3\3\4\4")
    assert predict("last", "--json", "--data-dir", "others") == 0
    answer = json.loads(output(capsys)[0])
    assert (answer["accuracy"], answer["recorded_accuracy"]) == (0.5, None)


def test_no_wrong_image(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_test_set(store.parent / "mine", b"\3\3")
    run = make_run(store, constant(3), data_dir=str(store.parent / "mine"))
    assert predict("last", "--wrong") == 0
    assert "classifies every image correctly" in output(capsys)[1]
    assert not (run.path / "figures").exists()


# ---- A user's picture


def test_a_users_picture(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict("last", str(SEVEN)) == 0
    out, err = output(capsys)
    assert f"{SEVEN}: 7\n" in out
    assert re.search(r"^7 +99\.\d\d%\s*$", out, re.MULTILINE)
    assert len(re.findall(r"^\d +.*%\s*$", out, re.MULTILINE)) == 3
    assert err == f"the model's input: runs/{run.run_id}/figures/own.png\n"
    assert predict("last", str(SEVEN), "--json", "--output=seen.png") == 0
    answer = json.loads(output(capsys)[0])
    assert (answer["predicted"], answer["figure"]) == (7, "seen.png")
    assert sum(answer["probabilities"]) == pytest.approx(1)
    assert max(answer["probabilities"]) == answer["probabilities"][7]
    Image.open("seen.png").verify()


def test_it_needs_no_test_set(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(store, trained(), data_dir="/gone")
    assert predict("last", str(SEVEN)) == 0
    assert predict("last") == 2
    assert "is no longer in /gone; name the directory of the data" in output(capsys)[1]


# ---- Refusals, in one line


def test_bad_arguments(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.png").write_bytes(SEVEN.read_bytes())
    for arguments, fault in (
        ("--averages", "its softmax model has no moving averages; leave out --averages"),
        ("--data-dir=.", ": has no file t10k-images-idx3-ubyte.gz or t10k-images-idx3-ubyte; give"),
        ("own.png --output=./own.png", "--output: ./own.png is the picture itself; name another"),
    ):
        assert predict("last", *arguments.split()) == 2
        out, err = output(capsys)
        assert (out, err.count("\n")) == ("", 1)
        assert fault in err
    assert Path("own.png").read_bytes() == SEVEN.read_bytes()
    assert not (run.path / "figures").exists()


DAMAGED = b"PK\3\4 and nothing else"
IN_CONTAINERS = {"backend": "compose", "data_dir": "/lab/data/mine"}


@pytest.mark.parametrize(
    ("changes", "saved", "expected"),
    [
        ({}, DAMAGED, "model.npz: is not a saved model ("),
        ({"state": State.FAILED}, None, "(failed) saved no model; use a run that succeeded"),
        ({"state": State.TRAINING}, None, "(training) saved no model; wait until it has ended"),
        ({}, None, "(succeeded) saved no model; call lab.saved_model.save_model in its program"),
        (IN_CONTAINERS, trained(), "was tested on data in its containers, in /lab/data/mine; name"),
    ],
)
def test_runs_without_a_model(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    saved: SavedModel | bytes | None,
    expected: str,
) -> None:
    run = make_run(store, trained() if saved == DAMAGED else saved, **changes)
    if isinstance(saved, bytes):
        (run.path / "model/model.npz").write_bytes(saved)
    assert predict("last") in {1, 2}
    (line,) = output(capsys)[1].splitlines()
    assert expected in line


# ---- Images


def answers(count: int) -> list[Prediction]:
    image = np.zeros(784, np.float32)
    return [Prediction(image, 3, 0.61, 3 if place % 2 else 5) for place in range(count)]


def test_captions() -> None:
    wrong, right = answers(2)
    assert (wrong.caption, right.caption) == ("✗ 3  61%, is 5", "3  61%")
    assert [percent(share) for share in (1, 0.9999, 0.5, 0.001, 0)] == [
        "100%", ">99%", "50%", "<1%", "0%",
    ]  # fmt: skip
    assert most_probable(np.array([0.1, 0.6, 0.3]), 2) == [(1, 0.6), (2, 0.3)]


@pytest.mark.parametrize("count", [1, 24, 100])
def test_a_grid_of_any_size(count: int) -> None:
    data = draw_grid(answers(count), "a run\nwith $two$ lines")
    image = Image.open(io.BytesIO(data)).convert("RGB")
    assert draw_grid(answers(count), "a run\nwith $two$ lines") == data
    colours = {colour for _, colour in image.getcolors(1 << 24) or []}
    assert (0xD5, 0x5E, 0x00) in colours  # wrong
    assert ((0x00, 0x72, 0xB2) in colours) == (count > 1)  # right
    pixels = np.asarray(image)
    assert (pixels[:, -2:] == 255).all()  # nothing is cut off
    assert (pixels[-2:] == 255).all()


def under_a_terminal(directory: Path, *arguments: str, **variables: str) -> str:
    """The output of a command on a terminal of 100 columns."""
    terminal = {"COLUMNS": "100", "LINES": "50", "TERM": "xterm-256color", **variables}
    code, shown = on_a_terminal(directory, arguments, PATIENCE_S, **terminal)
    assert code == 0, shown
    return shown


def test_a_terminal_gets_a_row_of_digits(run: RunDir, tmp_path: Path) -> None:
    colours = {"COLORTERM": "truecolor"}
    row = under_a_terminal(tmp_path, "predict", "last", **colours)
    half_blocks = [line for line in row.splitlines() if "▀" in line]
    assert len(half_blocks) == 7
    assert {line.count("▀") for line in half_blocks} == {6 * 14}
    assert "\x1b[38;2;" in row
    own = under_a_terminal(tmp_path, "predict", "last", str(SEVEN), **colours)
    assert {line.count("▀") for line in own.splitlines() if "▀" in line} == {28}
    plain = under_a_terminal(tmp_path, "predict", "last", TERM="xterm", NO_COLOR="1")
    assert "▀" not in plain
    assert "█" in plain
    dumb = under_a_terminal(tmp_path, "predict", "last", TERM="dumb")
    assert "█" not in dumb
    assert "predicted" in dumb
    assert run.path.is_dir()
