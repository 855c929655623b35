"""Plug-ins: what other packages add to lab, by entry points of the groups `gpulab.*`.

Entry points are metadata, so a package is imported only when its plug-in is used. A broken package
disables only its own plug-ins, and one line names it with its version.
"""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, EntryPoint, distribution, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

import lab
from lab.base.errors import InputError, LabError
from lab.base.log import LOG
from lab.base.shipped import CLONE, DISTRIBUTION
from lab.base.variables import LAB_PLUGINS

SLOW_S: Final = 1.0
"""Seconds above which the import of a plug-in is reported."""

NONE: Final = "none"
"""The value of `LAB_PLUGINS` that disables the plug-ins of all other packages."""

_NAME: Final = re.compile("[a-z][a-z0-9-]{0,39}")
OWN: Final = f"{DISTRIBUTION} {lab.__version__}"
"""The origin of lab's own plug-ins."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of an installed package.

    Attributes:
        name: Its name.
        origin: The package and its version.
        entry: The entry point.
    """

    name: str
    origin: str
    entry: EntryPoint

    def load(self, value: str = "") -> Any:  # noqa: ANN401  (its group decides what it is)
        """Import what the entry point names.

        Args:
            value: Another object of the package instead, `module:name`.

        Raises:
            LabError: It cannot be imported.
        """
        began = time.monotonic()
        entry = EntryPoint(self.name, value or self.entry.value, self.entry.group)
        try:
            loaded = entry.load()
        except (Exception, SystemExit) as error:  # the package may raise anything
            raise self.broken(f"{type(error).__name__}: {error}") from error
        if (took_s := time.monotonic() - began) > SLOW_S:
            LOG.warning(f"plug-in {self.name!r} of {self.origin} took {took_s:.1f} s to import")
        return loaded

    def folder(self) -> Path:
        """Return the directory of the package that the entry point names, without importing it.

        Raises:
            LabError: There is no such package.
        """
        try:
            spec = find_spec(self.entry.module)
        except (Exception, SystemExit) as error:  # a package around it is imported
            raise self.broken(f"{type(error).__name__}: {error}") from error
        if spec is None or not spec.submodule_search_locations:
            raise self.broken(f"there is no package {self.entry.module}")
        return Path(spec.submodule_search_locations[0])

    def broken(self, why: str) -> LabError:
        """Return the error of a plug-in that cannot be used."""
        return LabError(
            f"plug-in {self.name!r} of {self.origin} cannot be used: {why}",
            f"uninstall or update the package; {LAB_PLUGINS}={NONE} disables it",
        )

    def why(self, error: LabError) -> LabError:
        """Return an error that names the plug-in, also if a file of its package is to blame."""
        return error if str(error).startswith("plug-in ") else self.broken(error.what)


@cache
def warn_once(error: str) -> None:
    """Warn of a plug-in that is left out; a command may look for plug-ins several times."""
    LOG.warning(error)


@cache
def plugins(kind: str) -> dict[str, Plugin]:
    """Return the plug-ins of a kind by name: lab's own, then those of other packages by package.

    A package that needs another version of lab is left out, and so is a name that is taken: each
    with a warning.

    Args:
        kind: The group after `gpulab.`: `backends`, `experiments` or `lessons`.

    Raises:
        InputError: `LAB_PLUGINS` has an unknown value.
    """
    chosen = os.environ.get(LAB_PLUGINS, "")
    if chosen not in {"", NONE}:
        raise InputError(f"{LAB_PLUGINS}={chosen} is not valid", f"use {NONE}, or unset it")
    group = f"{DISTRIBUTION}.{kind}"
    found = {each.name: Plugin(each.name, OWN, each) for each in _own(group)}
    others = [(each.dist, each) for each in entry_points(group=group) if each.dist is not None]
    for package, entry in sorted(others, key=lambda each: (each[0].name, each[1].name)):
        if canonicalize_name(package.name) == DISTRIBUTION or chosen == NONE:
            continue
        plugin = Plugin(entry.name, f"{package.name} {package.version}", entry)
        taken = entry.name in found and f"{found[entry.name].origin} has one of this name"
        odd = not _NAME.fullmatch(entry.name) and "its name may only have a-z, 0-9 and hyphens"
        odd = odd or (not entry.pattern.match(entry.value) and f"{entry.value} is not module:name")
        if why := odd or taken or _misfit(package):
            LOG.warning(plugin.broken(why))
        else:
            found[entry.name] = plugin
    return found


def _own(group: str) -> Iterator[EntryPoint]:
    """Yield lab's own entry points, in their order.

    A clone may be used without an installation, or have new ones since.
    """
    if CLONE is None:
        yield from distribution(DISTRIBUTION).entry_points.select(group=group)
        return
    project = tomllib.loads((CLONE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, value in project["entry-points"].get(group, {}).items():
        yield EntryPoint(name, value, group)


def _misfit(package: Distribution) -> str:
    """Return why a package does not fit this version of lab, or ""."""
    for text in package.requires or ():
        try:
            needed = Requirement(text)
        except InvalidRequirement:
            continue
        fits = needed.specifier.contains(lab.__version__, prereleases=True)
        if canonicalize_name(needed.name) == DISTRIBUTION and needed.marker is None and not fits:
            return f"it needs {needed}, but this is {lab.__version__}"
    return ""


class _Outside(Protocol):
    @property
    def origin(self) -> str: ...


Outside = TypeVar("Outside", bound=_Outside)


def add_of_packages(
    found: dict[str, Outside],
    packages: Iterable[Plugin],
    read: Callable[[Path, str], Mapping[str, Outside]],
) -> dict[str, Outside]:
    """Add what packages have to what was found, by name.

    A package whose files cannot be used, and a name that is taken, are left out with a warning.

    Args:
        found: What was found; it is changed.
        packages: The packages' entry points.
        read: Reads the files in a package's directory, with the package's name and version.
    """
    for plugin in packages:
        try:
            added = read(plugin.folder(), plugin.origin)
            if not added:
                raise plugin.broken("it has none")
        except LabError as error:
            warn_once(str(plugin.why(error)))
            continue
        for name, each in added.items():
            if taken := found.get(name):
                kind = plugin.entry.group.rpartition(".")[2].removesuffix("s")
                warn_once(str(plugin.broken(f"its {kind} {name} also belongs to {taken.origin}")))
            else:
                found[name] = each
    return found
