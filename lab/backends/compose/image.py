"""The image that a rendered file asks for: its name, what it is built from, whether it is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.backends.compose.engine import Engine, answering
from lab.errors import LabError


@dataclass(frozen=True, slots=True)
class Image:
    """What the tasks run in.

    Attributes:
        service: The first service that builds it.
        name: `lab:cpu`.
        base: The image that it is built on, `python:3.11-slim-bookworm`.
        tensorflow: What pip installs, `tensorflow-cpu==2.21.*`.
        horovod: What pip compiles, `horovod==0.28.1`, or "".
    """

    service: str
    name: str
    base: str
    tensorflow: str
    horovod: str = ""


def image_of(config: dict[str, Any]) -> Image:
    """The image in compose's own reading of a rendered file.

    Raises:
        ValueError: No service builds one.
    """
    for name, service in config["services"].items():
        if "build" in service:
            arguments = service["build"]["args"]
            return Image(
                name,
                service["image"],
                arguments["BASE_IMAGE"],
                arguments["TENSORFLOW"],
                arguments.get("HOROVOD", ""),
            )
    raise ValueError("no service of the rendered file builds an image")


def is_here(engine: Engine, name: str) -> bool:
    """Whether the engine holds an image of this name.

    Raises:
        LabError: The engine does not answer.
    """
    with answering("looking for the image"):
        return bool(engine.client().images.list(name=name))


def can_be_fetched(engine: Engine, name: str) -> bool:
    """Whether a registry that the engine reaches has an image of this name."""
    try:
        with answering("asking the registry"):
            engine.client().images.get_registry_data(name)
    except LabError:
        return False
    return True
