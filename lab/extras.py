"""Errors that name the extra of `lab` whose package is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from lab.errors import LabError

MODULES: Final[Mapping[str, frozenset[str]]] = {
    "report": frozenset(
        {"PIL", "markupsafe", "matplotlib", "numpy", "pandas", "scipy", "tensorboard"}
    ),
    "simulation": frozenset({"simpy"}),
    "class": frozenset({"bcrypt", "dockerspawner", "jupyterhub", "segno", "tornado"}),
    "notebooks": frozenset({"IPython"}),
    "tensorflow": frozenset({"tensorflow"}),
}
"""Extra in pyproject.toml to the modules of it that `lab` imports."""


@contextmanager
def named_extras() -> Iterator[None]:
    """Report a missing package of an extra as such. It also decorates functions.

    Raises:
        LabError: The block imports a module of an extra that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        for extra, modules in MODULES.items():
            if missing in modules:
                raise LabError(
                    f"this needs {missing}, a package of the extra `{extra}`",
                    f"install it with `pip install 'lab[{extra}]'`",
                ) from error
        raise
