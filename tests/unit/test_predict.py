"""`lab predict`: its output, its images, and its refusals."""

from __future__ import annotations

import gzip
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lab.cli import main
from lab.predict.image_grid import draw_grid, draw_one
from lab.predict.prediction import Prediction, most_probable, percent
from lab.run.store import RunDir
from lab.task.protocol.states import State
from lab.task.sdk.data import load_test
from lab.task.sdk.model import SavedModel
from tests import oracle
from tests.support.cli import environ
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


def test_as_json_through_a_subprocess(run: RunDir, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lab", "predict", "last", "--json", "--count=5", "--seed=3"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ(tmp_path), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    answer = json.loads(done.stdout)
    assert answer["run_id"] == run.run_id
    assert (answer["model"], answer["parameters"]) == ("softmax", "final parameters")
    assert answer["accuracy"] == pytest.approx(answer["recorded_accuracy"], abs=1e-6)
    assert answer["test_images"] == 10_000
    assert sum(score["right"] for score in answer["digits"]) == round(10_000 * RECORDED)
    assert sum(score["images"] for score in answer["digits"]) == 10_000
    assert len(answer["images"]) == 5
    assert Path(answer["figure"]) == Path("runs") / run.run_id / "figures/digits.png"
    Image.open(tmp_path / answer["figure"]).verify()


def test_as_a_table(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    assert predict("last", "--wrong", "--count", "3") == 0
    out, err = output(capsys)
    assert "test images: 0.8923  (the run recorded 0.8923)" in out
    assert "async, softmax after 82,500 updates" in out
    assert re.search(r"^ +7 +1,028 +\d+ +0\.\d{4}  9 \(\d+\)", out, re.MULTILINE)
    assert len(re.findall(r"wrong\s*$", out, re.MULTILINE)) == 3
    assert "right\n" not in out.split("digit  predicted")[1]
    assert err == f"3 digits: runs/{run.run_id}/figures/digits.png\n"


def test_a_run_of_other_parameters_is_noticed(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(store, trained(), RECORDED + 0.0002)
    predict("last", "--count=1")
    assert "note:" not in output(capsys)[1]
    make_run(store, trained(), 0.5, run_id="later", started_unix=1.0)
    predict("last", "--count=1")
    assert (
        "note: the run recorded an accuracy of 0.5000, but its model has 0.8923"
        in output(capsys)[1]
    )


def test_moving_averages(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parameters, averages = (oracle.initial_parameters("mlp", seed) for seed in (1, 2))
    make_run(store, SavedModel("mlp", 5, parameters, averages))
    found = {}
    for flag in ("--averages", "--no-averages"):
        assert predict("last", flag, "--json", "--count=1") == 0
        answer = json.loads(output(capsys)[0])
        found[answer["parameters"]] = answer["accuracy"]
    examples = load_test()
    assert found == {
        "moving averages": pytest.approx(oracle.accuracy(averages, examples), abs=2.5e-4),
        "final parameters": pytest.approx(oracle.accuracy(parameters, examples), abs=2.5e-4),
    }


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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "`lab predict` needs RUN"),
        (["nobody"], "no run 'nobody' in runs"),
        (["last", "none.png"], "none.png: cannot be read (No such file or directory)"),
        (["last", "none.png", "--output=none.png"], "none.png: cannot be read"),
        (["last", str(SEVEN), "--wrong"], "select images of the test set; leave them out"),
        (["last", str(SEVEN), "--count=3"], "select images of the test set"),
        (["last", str(SEVEN), "--data-dir=."], "select images of the test set"),
        (["last", "a.png", "b.png"], "unexpected argument 'b.png'"),
        (["last", "--count=0"], "--count: '0' is not a whole number from 1 to 100"),
        (["last", "--count=101"], "--count: '101' is not a whole number"),
        (["last", "--count=\u0663"], "is not a whole number"),
        (["last", "--seed=-1"], "--seed: '-1' is not a whole number, 0 or more"),
        (["last", "--averages"], "its softmax model has no moving averages"),
        (["last", "--output=/"], "--output: / is a directory; name a file in it"),
        (["last", "--output=none/x.png"], "--output: there is no directory none"),
        (["last", "--data-dir=none"], "none is not a directory"),
        (["last", "--data-dir=."], "has no file t10k-images-idx3-ubyte"),
    ],
)
def test_bad_arguments(
    run: RunDir, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert predict(*arguments) == 2
    out, err = output(capsys)
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert expected in line
    assert not (run.path / "figures").exists()


def test_a_users_picture_is_not_overwritten(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.png").write_bytes(SEVEN.read_bytes())
    assert predict("last", "own.png", "--output=./own.png") == 2
    assert "own.png is the picture itself" in output(capsys)[1]
    assert Path("own.png").read_bytes() == SEVEN.read_bytes()


def test_a_name_with_control_characters(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b[31m.png"
    Path(name).write_bytes(SEVEN.read_bytes())
    assert predict("last", name) == 0
    assert predict("last", f"no{name}") == 2
    assert "\x1b" not in "".join(output(capsys))


@pytest.mark.parametrize(
    ("changes", "saved", "expected"),
    [
        ({"state": State.FAILED}, None, "(failed) saved no model; use a run that succeeded"),
        ({"backend": "compose", "data_dir": "/lab/data/mine"}, trained(),
         "was tested on data in its containers, in /lab/data/mine; name the directory"),
    ],
)  # fmt: skip
def test_runs_without_a_model(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    saved: SavedModel | None,
    expected: str,
) -> None:
    make_run(store, saved, **changes)
    assert predict("last") in {1, 2}
    (line,) = output(capsys)[1].splitlines()
    assert expected in line


def test_a_damaged_model(run: RunDir, capsys: pytest.CaptureFixture[str]) -> None:
    (run.path / "model/model.npz").write_bytes(b"PK\3\4 and nothing else")
    assert predict("last") == 1
    (line,) = output(capsys)[1].splitlines()
    assert "model.npz: is not a saved model (" in line
    assert line.endswith("; train the model again")


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


@pytest.mark.parametrize("count", [1, 3, 24, 100])
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


def test_the_users_settings_of_matplotlib_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = draw_one(np.zeros(784, np.float32), np.eye(10)[3], "title")
    (tmp_path / "matplotlibrc").write_text("text.usetex: true\nfont.size: 40\nsavefig.dpi: 30\n")
    monkeypatch.chdir(tmp_path)
    code = (
        "import numpy, sys; from lab.predict.image_grid import draw_one;"
        "sys.stdout.buffer.write("
        "draw_one(numpy.zeros(784, numpy.float32), numpy.eye(10)[3], 'title'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ(tmp_path), capture_output=True, check=True
    )
    assert done.stderr == b""
    assert done.stdout == expected


def under_a_terminal(directory: Path, *arguments: str, **variables: str) -> str:
    """The output of a command on a terminal of 100 columns."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(directory)
        os.execve(  # noqa: S606  (no shell is wanted)
            sys.executable,
            [sys.executable, "-m", "lab", *arguments],
            {**environ(directory), "COLUMNS": "100", "LINES": "50", **variables},
        )
    output, deadline = b"", time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            part = os.read(terminal, 1 << 16)
        except OSError:  # The other end is closed.
            break
        if not part:
            break
        output += part
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert status == 0, output
    return output.decode()


def test_a_terminal_gets_a_row_of_digits(run: RunDir, tmp_path: Path) -> None:
    colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
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


def test_help_needs_none_of_the_libraries(tmp_path: Path) -> None:
    code = (
        "import sys; from lab.cli import main; main(['predict', '--help']);"
        "sys.exit(bool({'numpy', 'PIL', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "usage: lab predict RUN [IMAGE] [FLAGS]" in done.stdout
