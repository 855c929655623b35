"""Where the answers come from: the model that a run saved, and the data that it was tested on."""

from __future__ import annotations

import struct
import tokenize
import zlib
from pathlib import Path
from typing import Final

from lab.errors import InputError, LabError
from lab.predict.network import Network, network
from lab.run.run_info import RunInfo
from lab.run.store import RunDir
from lab.task.sdk.data import DataError, Examples, load_test
from lab.task.sdk.model import FILE, SavedModel, load_model

MODEL: Final = "model"
"""The directory of a run's model, in the run's own."""


def saved_model(run: RunDir, info: RunInfo) -> SavedModel:
    """The model that a run saved.

    Raises:
        LabError: It saved none, or the file is damaged.
    """
    directory = run.path / MODEL
    if not (directory / FILE).is_file():
        raise LabError(f"run {info.run_id} ({info.state.value}) saved no model", _fix(info))
    try:
        return load_model(directory)
    except DataError as error:
        raise LabError(error.what, error.mend) from error
    # What NumPy lets through of an archive with broken bytes in it.
    except (
        AttributeError, MemoryError, NotImplementedError, RuntimeError, SyntaxError, TypeError,
        struct.error, tokenize.TokenError, zlib.error,
    ) as error:  # fmt: skip
        what = f"{directory / FILE}: is no saved model ({type(error).__name__}: {error})"
        raise LabError(what, "train the model again") from error


def _fix(info: RunInfo) -> str:
    if not info.state.ended:
        return f"wait until it has ended, then bring it home with `lab collect {info.run_id}`"
    if info.state.value == "succeeded":
        return (
            "let its program call lab.task.sdk.model.save_model, or take a run of another "
            "experiment; `lab runs` lists them"
        )
    return "only a run that succeeded has one; `lab runs` lists them"


def load_network(run: RunDir, saved: SavedModel, *, averages: bool) -> Network:
    """The model, ready to answer.

    Raises:
        InputError: It has no moving averages.
        LabError: It does not fit the kind that it claims to be.
    """
    return network(saved, averages=averages, source=str(run.path / MODEL / FILE))


def test_set(info: RunInfo, given: Path | None) -> Examples:
    """The images that the run was tested on, or those of the directory that the user names.

    Raises:
        InputError: They are not here, or damaged.
    """
    directory = given if given is not None else _own_data(info)
    try:
        return load_test(directory)
    except DataError as error:
        raise InputError(error.what, error.mend) from error


def _own_data(info: RunInfo) -> Path | None:
    """The directory of the run's own data; None for the data that is shipped."""
    if not info.spec.data_dir:
        return None
    fix = "name the directory that holds it now with --data-dir"
    if info.backend == "compose":
        what = (
            f"run {info.run_id} was tested on data that its containers saw as {info.spec.data_dir}"
        )
        raise InputError(what, fix)
    path = Path(info.spec.data_dir)
    if not path.is_dir():
        raise InputError(f"the data of run {info.run_id} is no longer in {path}", fix)
    return path
