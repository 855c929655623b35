"""A saved model reads back; the error for an invalid model is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.task.sdk.data import DataError
from lab.task.sdk.model import FILE, SavedModel, load_model, save_model

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_a_model_reads_back(tmp_path: Path) -> None:
    saved = SavedModel("mlp", 82_500, {"weights1": WEIGHTS}, {"weights1": WEIGHTS + 1})
    path = save_model(tmp_path / "new" / "model", saved)
    read = load_model(path.parent)
    assert (read.model, read.global_step) == ("mlp", 82_500)
    np.testing.assert_array_equal(read.parameters["weights1"], WEIGHTS)
    np.testing.assert_array_equal(read.averages["weights1"], WEIGHTS + 1)
    assert read.parameters["weights1"].dtype == np.float32
    assert [entry.name for entry in path.parent.iterdir()] == [FILE]


def test_a_write_that_fails_leaves_the_model_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(tmp_path, SavedModel("softmax", 1, {"weights": WEIGHTS}, {}))

    def half(file: object, **_: object) -> None:
        file.write(b"PK half a file")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(OSError, match="No space left"):
        save_model(tmp_path, SavedModel("softmax", 2, {"weights": WEIGHTS}, {}))
    monkeypatch.undo()
    assert load_model(tmp_path).global_step == 1
    assert [entry.name for entry in tmp_path.iterdir()] == [FILE]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 half an archive"])
def test_invalid_models(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(DataError, match="is not a saved model"):
        load_model(tmp_path)


def test_a_cut_model_and_another_archive(tmp_path: Path) -> None:
    path = save_model(tmp_path, SavedModel("softmax", 1, {"weights": WEIGHTS}, {}))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(DataError, match="is not a saved model"):
        load_model(tmp_path)
    np.savez(path, other=WEIGHTS)
    with pytest.raises(DataError, match="is not a saved model"):
        load_model(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match="is missing; train the model first"):
        load_model(tmp_path)
