"""Errors that name the extra of `lab` whose package is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from lab.errors import LabError
from lab.shipped import install_command

MODULES: Final[Mapping[str, frozenset[str]]] = {
    "report": frozenset(
        {"markupsafe", "matplotlib", "numpy", "pandas", "scipy", "tensorboard", "tornado"}
    ),
    "simulation": frozenset({"simpy"}),
    "class": frozenset(
        {"cryptography", "dockerspawner", "jupyterhub", "segno", "tornado", "traitlets"}
    ),
    "kubernetes": frozenset({"kubernetes"}),
    "notebooks": frozenset({"IPython"}),
    "tensorflow": frozenset({"tensorflow"}),
}
"""Extra in pyproject.toml to the modules of it that `lab` imports."""


@contextmanager
def named_extras() -> Iterator[None]:
    """Name the extra if a package of it is missing. It also works as a decorator.

    Raises:
        LabError: The block imports a module of an extra that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        for extra, modules in MODULES.items():
            if module in modules:
                raise _missing(module, extra) from error
        raise


def check_extra(extra: str) -> None:
    """Check before long work that the packages of an extra are installed.

    Raises:
        LabError: One is missing.
    """
    for module in sorted(MODULES[extra]):
        if find_spec(module) is None:
            raise _missing(module, extra)


def _missing(module: str, extra: str) -> LabError:
    return LabError(
        f"this needs {module}, a package of the extra `{extra}`",
        f"install it with `{install_command(extra)}`",
    )
