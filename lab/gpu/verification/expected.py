"""What a task is to see, and when ids are the same."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lab.gpu.model import SLICE


@dataclass(frozen=True, slots=True)
class Planned:
    """A task's plan.

    Attributes:
        ids: Device ids as the plan has them.
        uuids: The same by UUID, as far as it is known; an index where it is not.
    """

    ids: tuple[str, ...]
    uuids: tuple[str, ...]

    @property
    def named(self) -> bool:
        """Whether all UUIDs are known."""
        return not any(each.isdecimal() for each in self.uuids)

    @property
    def cut(self) -> bool:
        """Whether there are slices among them."""
        return any(each.upper().startswith(SLICE) for each in self.uuids)

    def same(self, seen: Collection[str]) -> bool:
        """Whether these are the planned UUIDs, in any order."""
        return folded(self.uuids) == folded(seen)


def folded(ids: Collection[str]) -> set[str]:
    """Ids as they are compared: without order, in one way of writing."""
    return {each.strip().lower() for each in ids}


def bare_uuid(uuid: str) -> str:
    """A UUID without the word that says whether it is a card's or a slice's."""
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")
