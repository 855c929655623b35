"""Plug-ins: found by their metadata, imported when used, and named when they are broken."""

from __future__ import annotations

import sys

import pytest

from lab import __version__
from lab.base import plugins as module
from lab.base.errors import InputError, LabError
from lab.base.plugins import plugins
from tests.support.packages import Install

TOLD = "uninstall or update the package; LAB_PLUGINS=none disables it"


def test_a_plugin_is_found_without_importing_its_package(install: Install) -> None:
    install("fleet", {"backends": "barge = fleet:Barge"}, {"fleet/__init__.py": "Barge = 7\n"})
    found = plugins("backends")["barge"]
    assert (found.name, found.origin, "fleet" in sys.modules) == ("barge", "fleet 1.2", False)
    assert found.folder().name == "fleet"
    assert "fleet" not in sys.modules
    assert found.load() == 7
    assert "barge" not in plugins("experiments")


@pytest.mark.parametrize(
    ("point", "source", "why"),
    [
        ("x = torn:X", "import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("x = torn:X", "", "AttributeError: module 'torn' has no attribute 'X'"),
        ("x = torn:X", "raise SystemError('no\\n\\x1b[31m')", "SystemError: no"),
        ("x = lost_package:X", "", "ModuleNotFoundError: No module named 'lost_package'"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_named(
    install: Install, monkeypatch: pytest.MonkeyPatch, point: str, source: str, why: str
) -> None:
    monkeypatch.delitem(sys.modules, "torn", raising=False)
    install("torn", {"backends": point}, {"torn/__init__.py": source})
    with pytest.raises(LabError) as caught:
        plugins("backends")["x"].load()
    line = str(caught.value)
    assert line.startswith("plug-in 'x' of torn 1.2 cannot be used: ")
    assert why in line
    assert line.endswith(TOLD)
    assert line.isprintable()


def test_an_entry_point_needs_a_package(install: Install) -> None:
    install("alone", {"lessons": "a = lost_package\nb = alone.more.lost\nc = alone.plain"}, {})
    for name in ("a", "b", "c"):
        with pytest.raises(LabError, match=f"plug-in '{name}' of alone 1.2 cannot be used"):
            plugins("lessons")[name].folder()


def test_a_name_has_one_owner_and_a_version_must_fit(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("zebra", {"backends": "barge = zebra:B"}, {})
    install("alpha", {"backends": "barge = alpha:B"}, {})
    install("old", {"backends": "raft = old:B"}, {}, needs="gpulab<0.0.1")
    install("new", {"backends": "ship = new:B"}, {}, needs=f"gpulab>={__version__}")
    found = {name: each.origin for name, each in plugins("backends").items()}
    assert found["barge"] == "alpha 1.2"
    assert found["ship"] == "new 1.2"
    assert "raft" not in found
    misfit, clash = caplog.messages
    assert clash.startswith("plug-in 'barge' of zebra 1.2 cannot be used: alpha 1.2 has one of")
    assert misfit == (
        "plug-in 'raft' of old 1.2 cannot be used: it needs gpulab<0.0.1, but this is"
        f" {__version__}; {TOLD}"
    )


def test_all_other_packages_can_be_disabled(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("fleet", {"backends": "barge = fleet:Barge"}, {})
    monkeypatch.setenv("LAB_PLUGINS", "none")
    plugins.cache_clear()
    assert "barge" not in plugins("backends")
    monkeypatch.setenv("LAB_PLUGINS", "some")
    plugins.cache_clear()
    with pytest.raises(InputError, match="LAB_PLUGINS=some is not valid; use none, or unset it"):
        plugins("backends")


def test_a_slow_import_is_reported(
    install: Install, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install("snail", {"backends": "slow = snail:S"}, {"snail/__init__.py": "S = 1\n"})
    monkeypatch.setattr(module, "SLOW_S", -1.0)
    assert plugins("backends")["slow"].load() == 1
    assert caplog.messages == ["plug-in 'slow' of snail 1.2 took 0.0 s to import"]
