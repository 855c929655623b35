"""Every config beside its expected output, to the byte; see `tests/golden/cases.py`."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from lab.base.errors import ConfigError
from lab.cluster.config import load_cluster
from lab.cluster.config.schema import FILE, json_schema
from tests.golden.cases import BAD, GOOD, bad_output, good_outputs


def expect(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing; write it with `make golden` and read it"
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("source", GOOD, ids=lambda path: path.stem)
def test_config_renders_as_expected(source: Path, request: pytest.FixtureRequest) -> None:
    for path, text in good_outputs(source):
        expect(path, text, request)


@pytest.mark.parametrize("source", BAD, ids=lambda path: path.stem)
def test_errors_of_a_config_are_as_expected(source: Path, request: pytest.FixtureRequest) -> None:
    expect(*bad_output(source), request)


def test_the_shipped_schema_is_the_models(request: pytest.FixtureRequest) -> None:
    expect(FILE, json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n", request)


def test_enough_faults_are_covered() -> None:
    assert len(BAD) >= 30


def test_every_golden_file_has_a_config() -> None:
    expected = {path for source in GOOD for path, _ in good_outputs(source)}
    expected |= {bad_output(source)[0] for source in BAD}
    folders = {path.parent for path in [*GOOD, *BAD]}
    present = {path for folder in folders for path in folder.iterdir()} - {*GOOD, *BAD}
    assert present == expected


def test_a_file_of_10_mb_is_refused_after_its_first_mebibyte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Path("large.yaml").open("wb") as file:
        file.write(b"version: 1\n")
        file.truncate(10 * 1000**2)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError) as caught:
            load_cluster(Path("large.yaml"))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * 1024**2
    assert caught.value.exit_code == 2
    assert caught.value.problems == [
        "large.yaml:1:1: the file is larger than 1 MiB; is it a config?"
    ]
