"""`lab load BUNDLE [EARLIER-BUNDLE…]`.

First all checksums are checked: a damaged archive changes nothing. Then the files are written.
What was there before and differs is kept in a directory `before-load-…`. Images go into the engine.

Examples:
    # a bundle, into this directory
    lab load room.tar
    # a second one, which lacks what the first one has
    lab load news.tar room.tar
    # only the files, into another directory
    lab load room.tar --into course --no-images
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from lab.bundle.loading import described, load
from lab.console import print_json
from lab.log import LOG
from lab.options import Arguments, Flag, Switch
from lab.options.shared import AsJson
from lab.options.types import text


def command(
    *,
    bundles: Annotated[
        tuple[str, ...], Arguments("what `lab bundle` wrote, the newest one first", "BUNDLE")
    ],
    into: Annotated[str, Flag("the directory of the project", text, shows="DIR")] = ".",
    no_images: Annotated[bool, Switch("load no images of containers")] = False,
    json: AsJson = False,
) -> None:
    """Check and load a bundle, in a room without a network."""
    loaded = load([Path(each) for each in bundles], Path(into), with_images=not no_images)
    if json:
        print_json(loaded.to_json())
        return
    for line in described(loaded):
        LOG.info(line)
