"""Take the pictures of pages that the documents show, from real runs, in light and dark colours.

    python -m tools.screenshots    write docs/images/{report,board}-{light,dark}.webp

The report is of two sample runs. The board replays a recording. It needs Chromium.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.agents import wait_for
from tests.support.chromium import Tab, a_browser

ROOT: Final = Path(__file__).resolve().parents[1]
IMAGES: Final = ROOT / "docs/images"
SAMPLES: Final = [
    ROOT / "notebooks/samples" / name
    for name in ("20261126-0447-async-b793", "20261126-0447-sync-f97e")
]
WIDTH: Final = 1200
"""Of a page in pixels."""

LAB: Final = (sys.executable, "-m", "lab")


def main() -> None:
    """Take all pictures."""
    with a_browser() as tab, tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        command = [*LAB, "report", *map(str, SAMPLES), "--output", str(page)]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        take(
            tab, page.as_uri(), "report", "document.images.length || document.querySelector('svg')"
        )
        with board(folder) as address:
            drawn = "document.querySelectorAll('#loss path').length === 3"
            late = "document.querySelector('#loss path').getTotalLength() > 300"
            take(tab, address, "board", f"{drawn} && {late}")


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


@contextmanager
def board(folder: str) -> Iterator[str]:
    """Serve the board of a recording; yield its address."""
    command = [*LAB, "serve", "straggler", "--speed", "2"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        yield next(iter(process.stdout or ())).strip()
        process.terminate()


if __name__ == "__main__":
    main()
