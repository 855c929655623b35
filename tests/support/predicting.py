"""Runs with models, for the tests of `lab predict`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab.saved_model import SavedModel, load_model, save_model
from lab.store.directory import RunDir
from lab.volume.states import State
from tests.support.fakes import PLAN, record
from tests.support.specs import run_info

DIGITS = Path(__file__).parents[1] / "golden" / "digits"
SEVEN = DIGITS / "seven.png"

RECORDED = 0.89230001
"""TensorFlow's results for the model in `DIGITS`, at the end of its training run."""


def trained() -> SavedModel:
    """Softmax regression after 82,500 asynchronous updates by TensorFlow."""
    return load_model(DIGITS / "model")


def make_run(
    store: Path, saved: SavedModel | None, accuracy: float | None = None, **changes: Any
) -> RunDir:
    """A run that has ended, with its model and its recorded results."""
    given: dict[str, Any] = {
        "run_id": "20260101-0000-async-aaaa",
        "backend": "local",
        "state": State.SUCCEEDED,
        "cluster": PLAN.cluster_spec(),
        "submitted_unix": 1.0,
        **changes,
    }
    run = RunDir(store / given["run_id"])
    run.create(run_info(**given))
    if saved is not None:
        save_model(run.path / "model", saved)
    if accuracy is not None:
        output = record("worker-0", 0, "eval", accuracy=accuracy, global_step=7, probe=7)
        run.records("worker-0").parent.mkdir()
        run.records("worker-0").write_text(json.dumps(output) + "\n")
    return run
