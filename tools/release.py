"""Prepare a release in `build/release`, and tag it here. It publishes nothing.

`make release` checks this commit, builds the wheel and the source archive in a fresh clone, and
writes what a stranger needs to check them: a list of the packages of each environment (SBOM), the
digest of the images' sources, and checksums. Two runs on one commit give the same bytes.
`--dry-run` reports failed checks as warnings, and makes no tag.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / "build/release"
PASSED: Final = ROOT / "build/ci-passed"
"""The file in which `.ci/run` writes the commit that it has tested."""

LOCKS: Final = ("tensorflow", "class", "image-cpu", "image-cuda")
"""The files in `requirements/` that get an SBOM: what `lab` and its images are tested with."""

BUILD: Final = """\
import sys, tomllib
from importlib import import_module
from pathlib import Path

system = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["build-system"]
backend = import_module(system["build-backend"])
print(backend.build_sdist(sys.argv[1]))
print(backend.build_wheel(sys.argv[1]))
"""
"""Builds with the backend that `requirements/dev.txt` locks, in the current directory."""


def main(argv: Sequence[str]) -> int:
    """Check, build, tag, and print the commands that publish."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true", help="only warn, and create no tag")
    dry = parser.parse_args(argv).dry_run
    version = version_of(ROOT)
    notes = section(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)")
    problems = list(failed_checks(version, notes))
    for each in problems:
        print(f"{'warning' if dry else 'error'}: {each}", file=sys.stderr)
    if problems and not dry:
        return 1
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="lab-release-") as folder:
        _git("clone", "--quiet", "--local", ".", folder)
        built = make_files(Path(folder), version, validate=not dry)
    names = ", ".join(sorted(path.name for path in OUT.iterdir()))
    print(f"built in {OUT.relative_to(ROOT)}: {names}")
    tag = f"v{version}"
    if not dry:
        python = ".".join(map(str, sys.version_info[:2]))
        message = f"lab {version}\n\nBuilt with Python {python}.\n\n{notes}\n"
        _git("tag", "--annotate", "--cleanup=verbatim", f"--message={message}", tag)
        print(f"created the tag {tag} locally")
    print(commands(tag, built))
    return 0


def version_of(root: Path) -> str:
    """Return the version in `lab/__init__.py`. Only CITATION.cff has it, too."""
    text = (root / "lab/__init__.py").read_text("utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(found)


def section(name: str) -> str:
    """Return the text of the changelog below the heading `## NAME`; "" without this heading.

    Args:
        name: A regular expression.
    """
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    found = re.search(rf"^## {name}\n((?:(?!## ).*\n)*)", changelog, re.MULTILINE)
    return found[1].strip() if found else ""


def failed_checks(version: str, notes: str) -> Iterator[str]:
    """Yield what is missing before this commit can be released, with its fix."""
    if _git("status", "--porcelain"):
        yield "files are not committed; run `git status`, and commit or remove them"
    if _git("tag", "--list", f"v{version}"):
        yield f"the tag v{version} exists; raise the version in lab/__init__.py"
    if "version" in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]:
        yield "pyproject.toml has a version, too; keep only the one in lab/__init__.py"
    if f"\nversion: {version}\n" not in (ROOT / "CITATION.cff").read_text("utf-8"):
        yield f"CITATION.cff has another version; write `version: {version}`"
    if not notes:
        yield f"CHANGELOG.md has no changes below `## {version} (DATE)`; add the section"
    if section("Unreleased"):
        yield f"CHANGELOG.md has changes below `## Unreleased`; move them below `## {version}`"
    passed = PASSED.read_text("utf-8").strip() if PASSED.exists() else "no commit"
    if passed != _git("rev-parse", "HEAD"):
        yield f".ci/run has passed for {passed}, not for this commit; run .ci/run"


def make_files(clone: Path, version: str, *, validate: bool) -> list[str]:
    """Make all files of the release from a clone, and return the names of the built packages.

    Raises:
        SystemExit: A built package has another version.
    """
    stamp = _git("show", "--no-patch", "--format=%ct", "HEAD")
    # The backends and the SBOM take this time instead of the current one.
    environment = os.environ | {"SOURCE_DATE_EPOCH": stamp, "PYTHONPATH": ""}
    built = _run(["-c", BUILD, str(OUT)], clone, environment).split()
    if wrong := [name for name in built if f"-{version}" not in name]:
        raise SystemExit(f"error: lab/__init__.py has {version}, but this was built: {wrong[0]}")
    sbom = ["-W", "ignore", "-m", "cyclonedx_py", "requirements", "--output-reproducible"]
    sbom += ["--pyproject=sbom.toml", "--validate" if validate else "--no-validate"]
    # The tool reads no version from another file.
    project = (clone / "pyproject.toml").read_text("utf-8")
    project = project.replace('dynamic = ["version"]', f'version = "{version}"')
    (clone / "sbom.toml").write_text(project, "utf-8")
    for name in LOCKS:
        file = str(OUT / f"sbom-{name}.cdx.json")
        _run([*sbom, f"--output-file={file}", f"requirements/{name}.txt"], clone, environment)
    digest = _run(["-m", "lab.base.image_digest"], clone, environment).strip()
    (OUT / "image-sources.sha256").write_text(f"{digest}\n", "utf-8")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(OUT.iterdir())
    ]
    (OUT / "SHA256SUMS").write_text("".join(lines), "utf-8")
    return built


def commands(tag: str, built: Sequence[str]) -> str:
    """Return the commands that publish; a person runs them."""
    folder = OUT.relative_to(ROOT)
    packages = " ".join(f"{folder}/{name}" for name in built)
    return "\n".join(
        (
            "nothing is published yet; to publish, run:",
            f"  git push origin {tag}",
            f"  pipx run twine upload {packages}",
            f"  gh release create {tag} --verify-tag --notes-from-tag {folder}/*",
        )
    )


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def _run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run this Python in a folder, and return what it prints."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
