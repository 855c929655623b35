"""`make mutants`: test the tests, and write docs/evidence/mutants.md."""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tools.mutants import page
from tools.mutants.run import ROOT, Module, Outcome, copy_tree, run_module, sources_digest

SEED = 20


def main() -> int:
    """Test the modules named on the command line, or all; 1 where a result is not good enough."""
    modules = _modules()
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(modules)}")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the samples (default {SEED})")
    parser.add_argument(
        "--survivors",
        action="store_true",
        help="test only the survivors of the newest results again, after tests were added",
    )
    parser.add_argument("--page", action="store_true", help="write the page only, run nothing")
    arguments = parser.parse_args()
    if unknown := set(arguments.modules) - set(modules):
        parser.error(f"no such module: {', '.join(sorted(unknown))}; known: {', '.join(modules)}")
    chosen = [] if arguments.page else arguments.modules or list(modules)
    try:
        for name in chosen:
            if not arguments.survivors:
                _test(modules[name], arguments.seed)
            elif not _test_survivors(modules[name]):
                parser.error(f"{name}: its sources have changed; test it without `--survivors`")
    except KeyboardInterrupt:
        print("interrupted; this module's results are the old ones", file=sys.stderr)
        return 130
    except subprocess.CalledProcessError as error:
        print(f"mutmut ended with {error.returncode}; its output says why", file=sys.stderr)
        return 1
    faults = page.write()
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


def _modules() -> dict[str, Module]:
    text = Path(__file__).with_name("modules.toml").read_text(encoding="utf-8")
    return {name: Module(name, **each) for name, each in tomllib.loads(text).items()}


def _test(module: Module, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="lab-mutants-") as folder:
        tree = Path(folder)
        commit = _commit(module)
        copy_tree(tree)
        _record(module, run_module(module, tree, seed), commit)


def _test_survivors(module: Module) -> bool:
    """Test the kept survivors again; False where there are none of these sources."""
    kept = page.kept_results().get(module.name)
    if kept is None or kept["sources_sha256"] != sources_digest(module, ROOT):
        return False
    late = [name for name, status in kept["status"].items() if status == "timeout"]
    with tempfile.TemporaryDirectory(prefix="lab-mutants-") as folder:
        tree = Path(folder)
        commit = _commit(module)
        copy_tree(tree)
        again = run_module(module, tree, kept["seed"], [*kept["survivors"], *late])
    _record(module, page.merged(kept, again), commit)
    return True


def _record(module: Module, outcome: Outcome, commit: str) -> None:
    page.record(module.name, outcome, commit, datetime.datetime.now(datetime.UTC).date())


def _commit(module: Module) -> str:
    """The newest commit of a module's sources and tests, marked `+` where they differ from it."""
    paths = [*module.sources, *(test.partition("::")[0] for test in module.tests)]
    newest = _git("log", "-1", "--format=%h", "--", *paths)
    return newest + "+" if _git("status", "--porcelain", "--", *paths) else newest


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
