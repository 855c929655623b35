"""Error messages of `lab predict` for invalid models, pictures and data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lab.errors import InputError, LabError
from lab.predict import model_loader, preprocess
from lab.predict.network import Network, network
from lab.predict.preprocess import read_picture
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.protocol import Request, RunSpec
from lab.task.protocol.states import State
from lab.task.sdk.model import FILE, SavedModel


def saved(**parameters: object) -> SavedModel:
    fits = {"weights": np.zeros((784, 10), np.float32), "biases": np.zeros(10, np.float32)}
    return SavedModel("softmax", 100, {**fits, **parameters}, {})  # type: ignore[arg-type]


def test_invalid_models() -> None:
    def fault(model: SavedModel, *, averages: bool = False) -> str:
        with pytest.raises(LabError) as caught:
            network(model, averages=averages, source="model.npz")
        return str(caught.value)

    assert "unknown kind of model 'cnn'" in fault(SavedModel("cnn", 0, {}, {}))
    assert "no moving averages" in fault(saved(), averages=True)
    assert "has no parameter 'weights'" in fault(SavedModel("softmax", 0, {}, {}))
    assert "but a model softmax needs float32 of shape [10]" in fault(saved(biases=np.zeros(9)))
    diverged = saved(biases=np.full(10, np.nan, np.float32)).parameters
    with pytest.raises(LabError, match=r"the training diverged"):
        Network("softmax", diverged, averages=False, source="model.npz").logits(  # type: ignore[arg-type]
            np.zeros((1, 784), np.float32)
        )


def test_pictures_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(path: Path) -> str:
        with pytest.raises(InputError) as caught:
            read_picture(path)
        return str(caught.value)

    own = tmp_path / "own.png"
    assert "cannot be read (No such file or directory)" in fault(own)
    assert "is a directory; name a PNG" in fault(tmp_path)
    own.write_text("no picture")
    assert "is not a PNG" in fault(own)
    Image.new("L", (30, 20)).save(own)
    assert "the picture is blank; draw one digit on it" in fault(own)
    whole = own.read_bytes()
    own.write_bytes(whole[:45])
    assert "is damaged (" in fault(own)
    own.write_bytes(whole)
    monkeypatch.setattr(preprocess, "LARGEST", 100)
    assert "too large (30 x 20 pixels); give one of at most 100 pixels" in fault(own)
    monkeypatch.setattr(preprocess, "LARGEST_FILE", 10)
    assert "bytes; give a smaller picture" in fault(own)
    monkeypatch.undo()

    def refused(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")  # root may read everything

    monkeypatch.setattr(Image, "open", refused)
    assert "cannot be read (Permission denied); check the file and" in fault(own)


def test_runs_without_a_model_or_data(tmp_path: Path) -> None:
    request = Request("20260101-0000-async-aaaa", RunSpec("async", "p.py"), {"worker": ["a:1"]})
    info = RunInfo.of_request(request, backend="compose", project="mnist")
    run = RunDir(tmp_path)
    for state in (State.TRAINING, State.SUCCEEDED, State.FAILED):
        with pytest.raises(LabError, match=rf"\({state.value}\) saved no model; "):
            model_loader.saved_model(run, replace(info, state=state))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / FILE).write_text("noise")
    with pytest.raises(LabError, match=r"is not a saved model .*; train the model again"):
        model_loader.saved_model(run, info)
    np.savez(tmp_path / "model" / FILE, model="softmax")
    archive = (tmp_path / "model" / FILE).read_bytes()
    directory = archive.index(b"PK\x01\x02")
    unknown = archive[: directory + 10] + b"\x63" + archive[directory + 11 :]  # a way to compress
    (tmp_path / "model" / FILE).write_bytes(unknown)
    with pytest.raises(LabError, match=r"is not a saved model \(NotImplementedError: "):
        model_loader.saved_model(run, info)
    with pytest.raises(InputError, match=r"has no file t10k-images-idx3-ubyte.gz or"):
        model_loader.test_set(info, tmp_path)
    inside = replace(info, spec=replace(info.spec, data_dir="/lab/data"))
    with pytest.raises(InputError, match=r"in its containers, in /lab/data; name the directory"):
        model_loader.test_set(inside, None)
    elsewhere = replace(info.spec, data_dir=str(tmp_path / "away"))
    away = replace(info, spec=elsewhere, backend="local")
    with pytest.raises(InputError, match=r"is no longer in .*; name the directory"):
        model_loader.test_set(away, None)
