"""What was once read of an image: an image never changes under its id, so that it is read once."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Final

from lab.backends.compose import state
from lab.task.files import write_atomically

_MOST: Final = 32
"""Images that are kept in mind; a class uses two or three."""


def digest_of(image_id: str) -> str | None:
    """The digest of lab's sources in an image, if it was read before."""
    return _all().get(image_id)


def remember(image_id: str, digest: str) -> None:
    """Keep a digest in mind; where that cannot be written it is read again next time."""
    newest = {**_all(), image_id: digest}
    kept = dict(list(newest.items())[-_MOST:])
    with contextlib.suppress(OSError):
        write_atomically(_file(), json.dumps(kept, indent=2) + "\n", durable=False)


def _file() -> Path:
    return state.base() / "images.json"


def _all() -> dict[str, str]:
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: text for name, text in found.items() if isinstance(text, str)}
