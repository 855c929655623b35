"""The hosted CI: its steps are targets of the Makefile, and its actions cannot change."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.commands import ROOT

WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
SETUP = ".devcontainer/setup"


def jobs(path: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(path)["jobs"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_is_a_target_or_the_shared_script(path: Path) -> None:
    lines = [step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step]
    assert lines
    for line in lines:
        target = re.fullmatch(r"(?:sudo )?make ([\w-]+)", line)
        assert line == SETUP or (target and target[1] in TARGETS), line


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_only_read(path: Path) -> None:
    text = path.read_text("utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    assert [
        each for each in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", each)
    ] == []
    assert YAML(typ="safe").load(path)["permissions"] == {"contents": "read"}
    writing = {name for name, job in jobs(path).items() if "permissions" in job}
    assert writing <= {"publish-docs"}


def test_what_may_publish_runs_nothing_of_the_repository() -> None:
    job = jobs(ROOT / ".github/workflows/ci.yml")["publish-docs"]
    assert job["permissions"] == {"id-token": "write", "pages": "write"}
    assert [step["uses"].partition("@")[0] for step in job["steps"]] == ["actions/deploy-pages"]
    assert job["if"] == "github.event_name == 'push'"


def test_the_hosted_ci_checks_what_ci_run_checks() -> None:
    here = set(re.findall(r"^make (.*)$", (ROOT / ".ci/run").read_text("utf-8"), re.MULTILINE))
    each_change, nightly = (
        set(re.findall(r"make (\S+)", path.read_text("utf-8"))) for path in WORKFLOWS
    )
    assert here - {"test-groups"} <= each_change
    # It runs the groups, too, whatever has passed before.
    assert "test-all" in nightly


def test_the_hosted_ci_prepares_the_development_container() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text("utf-8"))
    assert container["postCreateCommand"] == SETUP
    assert os.access(ROOT / SETUP, os.X_OK)
    images = {
        job["container"] for path in WORKFLOWS for job in jobs(path).values() if "container" in job
    }
    assert images == {container["image"]}


def test_the_hooks_of_commits_exist() -> None:
    (repository,) = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")["repos"]
    for hook in repository["hooks"]:
        program, *arguments = hook["entry"].split()
        assert program == ".venv/bin/ruff" or (program == "make" and arguments[0] in TARGETS)
