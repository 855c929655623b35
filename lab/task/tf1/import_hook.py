"""Replace `import tensorflow` in a printed program by TensorFlow 1's API.

The API is made from the installed TensorFlow. Only the program and the modules in its directory
get it. TensorFlow itself, and its dependencies, keep the normal import.
"""

from __future__ import annotations

import builtins
import importlib
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Final, NamedTuple

_UNCHANGED: Final = ("tensorflow.python", "tensorflow.core", "tensorflow.compat")
"""Modules that have the same name in TensorFlow 1 and 2."""

_SLIM: Final = "tf_slim"
REMOVED: Final = "TensorFlow 2 removed it"
_INSTALLED: Final = {"site-packages", "dist-packages"}


class Part(NamedTuple):
    """The content of a module of TensorFlow 1; a part among the members becomes a submodule.

    Attributes:
        members: Its own names.
        renamed: Names to where they are now, such as `tf.multiply`.
        sources: Modules with its other names: of `tensorflow.compat.v1`, such as `tf` or
            `tf.train`, or of any package.
        why: Why every other name is missing.
    """

    members: Mapping[str, Any] = MappingProxyType({})
    renamed: Mapping[str, str] = MappingProxyType({})
    sources: Sequence[str] = ()
    why: str = REMOVED


class CompatModule(ModuleType):
    """A module of TensorFlow 1, made from the installed packages when a program uses a name."""

    def __init__(self, name: str, part: Part) -> None:
        super().__init__(name)
        self.__dict__.update(
            (member, CompatModule(f"{name}.{member}", value) if isinstance(value, Part) else value)
            for member, value in part.members.items()
        )
        self.__dict__["_part"] = part

    def __getattr__(self, name: str) -> Any:
        part: Part = self.__dict__["_part"]
        source, _, new_name = part.renamed.get(name, "").rpartition(".")
        places = [(source, new_name)] if source else [(module, name) for module in part.sources]
        why = part.why
        for place, member in places:
            try:
                return getattr(_found(place), member)
            except ImportError as error:
                if str(error.name).startswith(_SLIM):
                    why = "the package tf-slim is not installed"
            except AttributeError:
                pass
        raise AttributeError(_missing(self.__name__, name, why))

    def import_all(self) -> None:
        """Take over the public names of the packages, for `from MODULE import *`."""
        part: Part = self.__dict__["_part"]
        for source in part.sources:
            with suppress(ImportError):
                for name, value in vars(_found(source)).items():
                    if not name.startswith("_") and not isinstance(value, ModuleType):
                        self.__dict__.setdefault(name, value)


def _found(path: str) -> Any:
    """Return a module, or a member of TensorFlow 1's API.

    Raises:
        ModuleNotFoundError: Its package is not installed.
        AttributeError: TensorFlow's API has no such member.
    """
    import tensorflow.compat.v1 as tf  # noqa: PLC0415  (takes 3 s)

    first, _, rest = path.partition(".")
    if first == "tf":
        return operator.attrgetter(rest)(tf) if rest else tf
    module = importlib.import_module(path)
    if first == _SLIM:
        importlib.import_module("lab.task.tf1.slim")  # adapts it
    return module


def _missing(module: str, name: str, why: str) -> str:
    short = module.replace("tensorflow", "tf", 1)
    return f"{short}.{name} is not available: {why}"


def vars_of(module: ModuleType) -> dict[str, Any]:
    """Return the public functions, classes and constants that a module itself defines."""
    constants = module.__annotations__  # Python adds an empty one to the module if it has none
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (name in constants or getattr(value, "__module__", None) == module.__name__)
    }


def provide(folder: Path, top: CompatModule) -> None:
    """Use this API for later imports of the modules in a directory."""
    original_import = builtins.__import__

    def import_old(
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  (Python's name)
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        first, _, rest = name.partition(".")
        if level or first != "tensorflow" or not _is_in(folder, globals):
            return original_import(name, globals, locals, fromlist or (), level)
        if any(name == package or name.startswith(f"{package}.") for package in _UNCHANGED):
            try:
                imported = original_import(name, globals, locals, fromlist or (), level)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise
                above, _, last = error.name.rpartition(".")
                raise ImportError(_missing(above, last, REMOVED), name=name) from None
            return imported if fromlist else top
        module: Any = top
        try:
            for part in filter(None, rest.split(".")):
                module = getattr(module, part)
            for member in fromlist or ():
                if member != "*":
                    getattr(module, member)
                elif isinstance(module, CompatModule):
                    module.import_all()
        except AttributeError as error:
            raise ImportError(str(error), name=name) from None
        return module if fromlist else top

    builtins.__import__ = import_old


def _is_in(folder: Path, globals_: Mapping[str, object] | None) -> bool:
    file = (globals_ or {}).get("__file__")
    if not isinstance(file, str):
        return False
    path = Path(file).resolve()
    # Packages of a virtual environment in the program's directory are not part of the program.
    return path.is_relative_to(folder) and _INSTALLED.isdisjoint(path.relative_to(folder).parts)
