"""Take the pictures that the documents show, from real runs, in light and dark colours.

    python -m tools.screenshots [report] [board] [terminal]    write docs/images; without names, all

The report is of two sample runs. The board replays a recording. Both need Chromium. The terminals
show two trainings, one with a fault. They need tmux and TensorFlow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.support.agents import wait_for
from tests.support.chromium import Tab, a_browser
from tests.support.commands import environ
from tools import terminal

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs/images"
SAMPLES: Final = [
    ROOT / "notebooks/samples" / name
    for name in ("20261126-0447-async-b793", "20261126-0447-sync-f97e")
]
WIDTH: Final = 1200
"""Of a page in pixels."""

TRAINING: Final = "lab run async --epochs 3"
FAULT: Final = f"{TRAINING} --on-failure restart --fault 'kill worker-1 after 500 steps'"
LAB: Final = (sys.executable, "-m", "lab")


def main() -> None:
    """Take all pictures, or those that the command line names."""
    takers = {"report": report, "board": board, "terminal": terminals}
    for name in sys.argv[1:] or takers:
        with tempfile.TemporaryDirectory() as folder:
            takers[name](Path(folder))


def report(folder: Path) -> None:
    """Take the picture of a report."""
    page = folder / "report.html"
    command = [*LAB, "report", *map(str, SAMPLES), "--output", str(page)]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    with a_browser() as tab:
        take(
            tab, page.as_uri(), "report", "document.images.length || document.querySelector('svg')"
        )


def board(folder: Path) -> None:
    """Take the picture of a board, which replays a recording."""
    command = [*LAB, "serve", "straggler", "--speed", "2"]
    with (
        a_browser() as tab,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process,
    ):
        drawn = "document.querySelectorAll('#loss path').length === 3"
        late = "document.querySelector('#loss path').getTotalLength() > 300"
        take(tab, next(iter(process.stdout or ())).strip(), "board", f"{drawn} && {late}")
        process.terminate()


def terminals(folder: Path) -> None:
    """Draw a training, the end of one with a fault, and the clip of it."""
    # A project without a Docker engine: tasks are processes.
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    shutil.copy(ROOT / "cluster.yaml", folder)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = environ(folder) | {"PATH": path, "DOCKER_HOST": f"unix://{folder}/none"}
    frames = terminal.record(TRAINING, cwd=folder, env=env)
    live = next(frame for frame in frames if " left" in frame and "2/3" in frame)
    (IMAGES / "terminal.svg").write_text(terminal.drawn([live], "lab"), "utf-8")
    frames = terminal.record(FAULT, cwd=folder, env=env)
    (IMAGES / "terminal-fault.svg").write_text(terminal.drawn(frames[-1:], "lab"), "utf-8")
    title = f"lab, at {terminal.speed(frames):.0f} times its speed"
    (IMAGES / "run.svg").write_text(terminal.drawn(frames, title), "utf-8")


def take(tab: Tab, address: str, name: str, is_ready: str) -> None:
    """Write the pictures of a page.

    Args:
        tab: The browser's tab.
        address: The page.
        name: The beginning of the files' names.
        is_ready: An expression that is true when the page shows what it is about.
    """
    for colours in ("light", "dark"):
        tab.show_on(WIDTH, dark=colours == "dark", still=True)
        tab.open(address)
        wait_for(lambda: tab.run(f"Boolean({is_ready})"), name, 60)
        (IMAGES / f"{name}-{colours}.webp").write_bytes(tab.picture())


if __name__ == "__main__":
    main()
