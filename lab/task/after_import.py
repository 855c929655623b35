"""Run an action as soon as a program has imported a module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

Action = Callable[[ModuleType], None]


def after_import(modules: Collection[str], action: Action) -> None:
    """Run an action after each later import of one of these modules.

    Args:
        modules: Their full names.
        action: Receives the module, whose code has run.
    """
    sys.meta_path.insert(0, _Finder(modules, action))


class _Finder:
    """Finds some modules as Python does, and runs an action after their code."""

    def __init__(self, modules: Collection[str], action: Action) -> None:
        self._modules = modules
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._modules:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_act(module: ModuleType) -> None:
                execute(module)
                self._action(module)

            vars(spec.loader)["exec_module"] = execute_and_act
        return spec
