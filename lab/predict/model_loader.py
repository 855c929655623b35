"""Loads the saved model of a run, and the test data."""

from __future__ import annotations

import struct
import tokenize
import zlib
from pathlib import Path
from typing import Final

from lab.backends.names import capabilities
from lab.errors import InputError, LabError
from lab.mnist import DataError, Examples, load_test
from lab.predict.network import Network, network
from lab.saved_model import FILE, SavedModel, load_model
from lab.store.directory import RunDir
from lab.store.run_info import RunInfo

MODEL: Final = "model"
"""The name of the model's directory in the run's directory."""


def saved_model(run: RunDir, info: RunInfo) -> SavedModel:
    """Load the model that a run saved.

    Raises:
        LabError: The run saved none, or the file is damaged.
    """
    directory = run.path / MODEL
    if not (directory / FILE).is_file():
        raise LabError(f"run {info.run_id} ({info.state.value}) saved no model", _fix(info))
    try:
        return load_model(directory)
    except DataError as error:
        raise LabError(error.what, error.fix) from error
    # The exceptions that NumPy raises for a damaged archive.
    except (
        AttributeError, MemoryError, NotImplementedError, RuntimeError, SyntaxError, TypeError,
        struct.error, tokenize.TokenError, zlib.error,
    ) as error:  # fmt: skip
        what = f"{directory / FILE}: is not a saved model ({type(error).__name__}: {error})"
        raise LabError(what, "train the model again") from error


def _fix(info: RunInfo) -> str:
    if not info.state.ended:
        return f"wait until it has ended, then collect it with `lab collect {info.run_id}`"
    if info.state.value == "succeeded":
        return (
            "call lab.saved_model.save_model in its program, or use a run of another "
            "experiment; `lab runs` lists them"
        )
    return "use a run that succeeded; `lab runs` lists them"


def load_network(run: RunDir, saved: SavedModel, *, averages: bool) -> Network:
    """Return the network of a saved model.

    Raises:
        InputError: The model has no moving averages.
        LabError: Its parameters do not fit its kind.
    """
    return network(saved, averages=averages, source=str(run.path / MODEL / FILE))


def test_set(info: RunInfo, given: Path | None) -> Examples:
    """Load the test images of the run, or of the directory that the user names.

    Raises:
        InputError: They are missing or damaged.
    """
    directory = given if given is not None else _own_data(info)
    try:
        return load_test(directory)
    except DataError as error:
        raise InputError(error.what, error.fix) from error


def _own_data(info: RunInfo) -> Path | None:
    """Return the directory of the run's own data; None for the data of the project."""
    if not info.spec.data_dir:
        return None
    fix = "name the directory of the data with --data-dir"
    if capabilities(info.backend).containers:
        what = f"run {info.run_id} was tested on data in its containers, in {info.spec.data_dir}"
        raise InputError(what, fix)
    path = Path(info.spec.data_dir)
    if not path.is_dir():
        raise InputError(f"the data of run {info.run_id} is no longer in {path}", fix)
    return path
