"""One thing after the other: what fails keeps none of the others from its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from lab.console import say
from lab.errors import InputError, LabError


@contextmanager
def in_turn() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Let what fails wait until all have had their turn; what the user is to decide does not.

    Yields:
        Makes the context manager around each.

    Raises:
        LabError: The last of what failed, or what the user is to decide; the others have a line
            each.
    """
    faults: list[LabError] = []

    @contextmanager
    def one() -> Iterator[None]:
        try:
            yield
        except InputError:
            raise
        except LabError as error:
            faults.append(error)

    try:
        yield one
        if faults:
            raise faults[-1]
    except LabError as last:
        for fault in dict.fromkeys(map(str, faults)):
            if fault != str(last):
                say(fault)
        raise
