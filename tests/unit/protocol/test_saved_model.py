"""A saved model reads back; the error for an invalid model is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.protocol.mnist import DataError
from lab.protocol.saved_model import FILE, SavedModel, load_model, save_model

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


@pytest.mark.parametrize("damage", ["empty", "no archive", "cut", "other", "missing"])
def test_invalid_models(tmp_path: Path, damage: str) -> None:
    path = save_model(tmp_path, SavedModel("softmax", 1, {"weights": WEIGHTS}, {}))
    if damage == "missing":
        path.unlink()
    elif damage == "other":
        np.savez(path, other=WEIGHTS)
    else:
        kept = path.read_bytes()[:-50]
        path.write_bytes({"empty": b"", "no archive": b"no archive", "cut": kept}[damage])
    wanted = "is missing; train the model" if damage == "missing" else "is not a saved model"
    with pytest.raises(DataError, match=wanted):
        load_model(tmp_path)
