"""Put the built site of the documents beside those of earlier versions, in build/site.

    python -m tools.site_versions [--keep]    after `make docs`; --keep pushes them to a branch

The branch `site` of the remote repository keeps a folder for each version, such as 0.2. The file
versions.json is what the theme's list of versions reads. A maintainer pushes it, and no workflow.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from lab import __version__

BRANCH: Final = "refs/heads/site"
_ABSENT: Final = 2
"""The exit code of `git ls-remote` if there is no such branch."""


def restore(site: Path, repository: Path) -> str:
    """Write the sites that the branch keeps; return its commit, or "" if there is no branch.

    Raises:
        CalledProcessError: The remote repository cannot be read.
    """
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    asked = ["git", "ls-remote", "--exit-code", "origin", BRANCH]
    if (
        done := subprocess.run(asked, cwd=repository, check=False, stdout=subprocess.DEVNULL)
    ).returncode:
        if done.returncode != _ABSENT:
            done.check_returncode()
        return ""
    _git(repository, "fetch", "--quiet", "origin", BRANCH)
    commit = _git(repository, "rev-parse", "FETCH_HEAD").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git(repository, "archive", commit))) as archive:
        archive.extractall(site, filter="data")
    return commit


def folder_of(version: str) -> str:
    """Return the folder of a version: `0.2.0` is in `0.2`."""
    return version.rsplit(".", 1)[0]


def add(built: Path, site: Path, version: str) -> None:
    """Add or replace a version.

    Args:
        built: The site of this version, by `make docs`.
        site: The directory with a folder for each version.
        version: The version of lab.
    """
    name = folder_of(version)
    shutil.rmtree(site / name, ignore_errors=True)
    shutil.copytree(built, site / name)
    listed = site / "versions.json"
    others = json.loads(listed.read_text()) if listed.exists() else []
    versions = [each for each in others if each["version"] != name]
    versions.append({"version": name, "title": version, "aliases": []})
    versions.sort(key=lambda each: [int(part) for part in each["version"].split(".")], reverse=True)
    listed.write_text(json.dumps(versions, indent=1))
    newest = versions[0]["version"]
    refresh = f'<meta http-equiv="refresh" content="0; url={newest}/index.html">'
    (site / "index.html").write_text(f"<!doctype html><title>lab</title>{refresh}")


def keep(site: Path, repository: Path, parent: str) -> None:
    """Push the sites to the branch, as a commit after its last one."""
    index = site.with_name("site.index").absolute()
    index.unlink(missing_ok=True)
    work = ("--work-tree", str(site.absolute()))
    _git(repository, *work, "add", "--all", "--force", ".", index=index, cwd=site)
    tree = _git(repository, "write-tree", index=index).decode().strip()
    after = ("-p", parent) if parent else ()
    made = _git(repository, "commit-tree", tree, *after, "-m", "Keep the documents' sites")
    _git(repository, "push", "--quiet", "origin", f"{made.decode().strip()}:{BRANCH}")


def _git(
    repository: Path, *words: str, index: Path | None = None, cwd: Path | None = None
) -> bytes:
    git_dir = ("--git-dir", _git_dir(repository))
    env = {**os.environ, **({"GIT_INDEX_FILE": str(index)} if index else {})}
    command = ["git", *git_dir, *words]
    return subprocess.run(
        command, cwd=cwd or repository, env=env, check=True, stdout=subprocess.PIPE
    ).stdout


def _git_dir(repository: Path) -> str:
    command = ["git", "rev-parse", "--absolute-git-dir"]
    return subprocess.run(
        command, cwd=repository, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def main(root: Path) -> None:
    """Write build/site of a repository."""
    site = root / "build/site"
    last = restore(site, root)
    add(root / "build/docs", site, __version__)
    if "--keep" in sys.argv:
        keep(site, root, last)


if __name__ == "__main__":
    main(Path(__file__).resolve().parents[1])
