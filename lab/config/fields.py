"""The types of values that several kinds of configs have, and the base of their models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from lab import units as sizes

MAX_GPUS: Final = 1024
MAX_CPUS: Final = 4096
MAX_PORT: Final = 65535

PROJECT: Final = "^[a-z0-9][a-z0-9-]{0,30}$"
NODE: Final = "^[a-z]([a-z0-9-]{0,29}[a-z0-9])?$"

MEMORY: Final = "an amount such as 8GiB or 512MiB, from 64MiB to 64TiB"


def text_of(
    parse: Callable[[str], object], expected: str, *, explain: bool = False
) -> BeforeValidator:
    """Return a validator that parses a text.

    Args:
        parse: The parser. Raises ValueError for an invalid text.
        expected: The expected form, for the message.
        explain: Whether the message also has the parser's reason.
    """

    def validate(value: object) -> object:
        why = ""
        if isinstance(value, str):
            try:
                return parse(value)
            except ValueError as error:
                why = " ({})".format(str(error).partition("; ")[0]) if explain else ""
        raise PydanticCustomError("expected", "must be {expected}", {"expected": expected + why})

    return BeforeValidator(validate)


def amount(units: Mapping[str, int], expected: str, least: int, most: int) -> BeforeValidator:
    """Return a validator that parses an amount to a whole number of the smallest unit."""

    def read(text: str) -> int:
        amount = sizes.parse(text, units)
        if not least <= amount <= most:
            raise ValueError(expected)
        return amount

    return text_of(read, expected)


def shown(example: str, *more: str, pattern: str = "") -> WithJsonSchema:
    """Return the JSON Schema of a text."""
    shape = {"pattern": pattern} if pattern else {}
    return WithJsonSchema({"type": "string", **shape, "examples": [example, *more]})


def kind_of(number: str, other: str, *types: type) -> Callable[[object], str | None]:
    """Return a function that names the branch of a union for a value."""

    def kind(value: object) -> str | None:
        if isinstance(value, int) and not isinstance(value, bool):
            return number
        return other if isinstance(value, types) else None

    return kind


GpuCount = Annotated[int, Field(ge=0, le=MAX_GPUS)]
NodeName = Annotated[str, Field(pattern=NODE)]
Memory = Annotated[
    int,
    amount(sizes.MEMORY, MEMORY, 64 * sizes.MIB, 64 * sizes.TIB),
    shown("8GiB", pattern=sizes.pattern(sizes.MEMORY)),
]


class ConfigModel(BaseModel):
    """A mapping of a config: it is frozen, and its values are not converted."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        defer_build=True,  # the parts are built with the whole
    )
