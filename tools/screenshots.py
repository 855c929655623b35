"""Take the pictures that the documents show, from real runs, in light and dark colours.

    python -m tools.screenshots [report] [board] [terminal] [seat]    write them to docs/images

The report is of two sample runs. The board replays a recording. Both need Chromium. The terminals
show two trainings, one with a fault. They need tmux and TensorFlow. The seat is one of a class, and
needs a Docker engine; LAB_TEST_ENGINE=1 starts a private one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lab.base.variables import LAB_STATE
from lab.teach.classroom.class_dir import ClassDir
from tests.support.agents import wait_for
from tests.support.browser import page_of
from tests.support.chromium import Tab, a_browser
from tests.support.commands import environ, free_port
from tests.support.engine import an_engine, make_base_image
from tools import terminal

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs/images"
SAMPLES: Final = [
    ROOT / "notebooks/samples" / name
    for name in ("20261126-0447-async-b793", "20261126-0447-sync-f97e")
]
BOTH: Final = ("light", "dark")
WIDTH: Final = 1200
"""Of a page in pixels."""

TRAINING: Final = "lab run async --epochs 3"
FAULT: Final = f"{TRAINING} --on-failure restart --fault 'kill worker-1 after 500 steps'"
CLASS: Final = """\
version: 1
name: workshop
seats: [ada]
seat: {{cpus: 2, memory: 3GiB}}
cluster: {cluster}
address: 127.0.0.1:{port}
"""
SEAT_IS_SHOWN: Final = "document.querySelector('#jp-main-statusbar')?.innerText.includes('| Idle')"
LAB: Final = (sys.executable, "-m", "lab")


def main() -> None:
    """Take all pictures, or those that the command line names."""
    takers = {"report": report, "board": board, "terminal": terminals, "seat": seat}
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
    command = [*LAB, "attach", "straggler", "--web", "--speed", "2"]
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


def seat(folder: Path) -> None:
    """Take the picture of a seat of a class, with a notebook."""
    config = folder / "class.yaml"
    config.write_text(CLASS.format(port=free_port(), cluster=ROOT / "cluster.yaml"), "utf-8")
    os.environ[LAB_STATE] = str(folder)
    with an_engine() as engine:
        os.environ.update(engine.environment)
        os.environ.setdefault("LAB_BASE_IMAGE", make_base_image(engine.environment))

        def of_class(*arguments: str) -> None:
            subprocess.run([*LAB, "class", *arguments], cwd=ROOT, check=True)

        of_class("up", "--file", str(config))
        try:
            room = ClassDir("workshop")
            plan = room.stored().plan
            with a_browser() as tab:
                tab.show_on(WIDTH)
                tab.sign_in(plan.url, "ada", room.tokens().seats["ada"])
                page = page_of(plan, "ada", "lab/tree/notebooks/00_tour.ipynb")
                # JupyterLab does not follow the reader's colours.
                take(tab, page, "seat", SEAT_IS_SHOWN, ["light"])
        finally:
            of_class("down", "--yes", "--output", str(folder / "work.zip"))


def take(tab: Tab, address: str, name: str, is_ready: str, colours: Sequence[str] = BOTH) -> None:
    """Write the pictures of a page.

    Args:
        tab: The browser's tab.
        address: The page.
        name: The beginning of the files' names.
        is_ready: An expression that is true when the page shows what it is about.
        colours: Those of the pictures.
    """
    for each in colours:
        tab.show_on(WIDTH, dark=each == "dark", still=True)
        tab.open(address)
        wait_for(lambda: tab.run(f"Boolean({is_ready})"), name, 60)
        (IMAGES / f"{name}-{each}.webp").write_bytes(tab.picture())


if __name__ == "__main__":
    main()
