"""What was read from JSON as typed objects: there is an object, or a ValueError."""

from __future__ import annotations

from typing import TypeVar

from lab.task.text import short

T = TypeVar("T")


def convert(raw: object, kind: type[T]) -> T:
    """What was parsed as a dataclass, with every type checked.

    Raises:
        ValueError: A key is missing, or its value has another type; the message names the key.
    """
    # Imported here: not every command reads a run.
    import msgspec  # noqa: PLC0415

    try:
        return msgspec.convert(raw, kind)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ValueError(short(str(error))) from None
