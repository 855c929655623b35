"""The options of a single backend, `-o key=value`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lab.base.converters import one_of
from lab.base.errors import InputError

Value = str | float
"""The value of an option."""

Values = Mapping[str, Value]
"""The values of options, by name."""


@dataclass(frozen=True, slots=True)
class BackendOption:
    """An option of one backend.

    Attributes:
        name: Its name, the key.
        help: One line.
        parse: Reads the text; a ValueError names what is expected.
        shows: The form of the value in the help.
        default: The value without the option.
    """

    name: str
    help: str
    parse: Callable[[str], Value]
    shows: str
    default: Value

    @property
    def completions(self) -> list[str]:
        """What a shell offers for it: `network=isolated`, or `time=`."""
        values = self.shows.split("|")
        return [f"{self.name}={value}" for value in (values if len(values) > 1 else [""])]

    @property
    def usage(self) -> str:
        """Its form on the command line, `network=portable|isolated`."""
        return f"{self.name}={self.shows}"


def choice(name: str, summary: str, *values: str) -> BackendOption:
    """Return an option that takes one of several values; the first one is the default."""
    return BackendOption(name, summary, one_of(*values), "|".join(values), values[0])


def text_of(value: Value) -> str:
    """Return a value as text, for a command or a header."""
    return value if isinstance(value, str) else f"{value:.0f}"


def read_options(
    backend: str, declared: Sequence[BackendOption], texts: Sequence[str]
) -> dict[str, Value]:
    """Read the values of `-o key=value`.

    Args:
        backend: The backend's name, for messages.
        declared: Its options.
        texts: The texts after `-o`.

    Raises:
        InputError: The backend has no such option, a value is not valid, or one is given twice.
    """
    values: dict[str, Value] = {}
    for text in texts:
        key, equals, raw = text.partition("=")
        option = next((option for option in declared if option.name == key), None)
        if option is None:
            known = ", ".join(f"-o {option.usage}" for option in declared)
            raise InputError(
                f"-o {key or text}: backend {backend} has no such option",
                f"its options: {known}" if known else "leave it out: it has no options of its own",
            )
        if key in values:
            raise InputError(f"-o {key} is given twice", "give it once")
        try:
            if not equals:
                raise ValueError(option.shows)  # noqa: TRY301  (one message for both)
            values[key] = option.parse(raw)
        except ValueError as error:
            raise InputError(
                f"-o {text}: the option {key!r} of backend {backend} takes {error}",
                f"write -o {option.usage}",
            ) from error
    return values


def defaults_of(declared: Sequence[BackendOption]) -> dict[str, Value]:
    """Return the options with their defaults."""
    return {option.name: option.default for option in declared}


def changed(declared: Sequence[BackendOption], values: Values) -> dict[str, Value]:
    """Return the values that differ from the defaults."""
    return {
        option.name: values[option.name]
        for option in declared
        if values.get(option.name, option.default) != option.default
    }
