"""How cards are connected: by NVLink, over PCIe, and whether they read each other's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Final, TypeVar

from lab.gpu.model import Condition, Pair
from lab.gpu.nvml import Handle, Library, Questions, text
from lab.gpu.nvml_errors import INVALID_ARGUMENT, code_of, condition_of

MAX_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS of the newest nvml.h; a card has 18 at most today."""

PATHS: Final[Mapping[int, str]] = {
    0: "PIX",  # on one board
    10: "PIX",  # through one PCIe switch
    20: "PXB",  # through several switches, below one host bridge
    30: "PHB",  # through a host bridge
    40: "NODE",  # between the host bridges of a NUMA node
    50: "SYS",  # between NUMA nodes
}
"""The words of `nvidia-smi topo` for `nvmlGpuTopologyLevel_t`."""

# nvmlGpuP2PCapsIndex_t; pynvml has a tuple for the first one, by mistake.
_READ: Final = 0
_NVLINK: Final = 2
_OK: Final = 0
_UNKNOWN: Final = 6

# nvmlIntNvLinkDeviceType_t.
_TO_SWITCH: Final = 2
_TO_UNKNOWN: Final = 0xFF

Unknown = tuple[str, Condition]

T = TypeVar("T")
D = TypeVar("D")


@dataclass(slots=True)
class _Links:
    """The active links of a card: to others by their bus ids, and into a switch."""

    direct: Counter[str] = field(default_factory=Counter)
    switched: int = 0


def read_pairs(
    library: Library, cards: Mapping[int, Handle]
) -> tuple[tuple[Pair, ...], dict[int, list[Unknown]]]:
    """Every pair of cards.

    Args:
        library: The open library.
        cards: Whole cards by their indices.

    Returns:
        The pairs in order of their indices; and for each card that had no answer, the fields of
        its pairs that are unknown, and why.
    """
    if len(cards) < 2:  # noqa: PLR2004  (a pair)
        return (), {}
    questions = {index: Questions(library) for index in cards}

    def ask(index: int, field: str, question: Callable[[], T], default: D) -> T | D:
        return questions[index].ask_of_pair(field, question, default)

    bus_ids = {
        index: ask(index, "nvlinks", partial(_own_bus_id, library, card), "")
        for index, card in cards.items()
    }
    known = {bus_id for bus_id in bus_ids.values() if bus_id}
    links = {
        index: ask(index, "nvlinks", partial(_links, library, card, known), _Links())
        for index, card in cards.items()
    }
    pairs = []
    for first, second in combinations(sorted(cards), 2):
        both = cards[first], cards[second]
        nvlinks = links[first].direct[bus_ids[second]]
        switched = min(links[first].switched, links[second].switched)
        if switched and ask(first, "nvlinks", partial(_can, library, both, _NVLINK), None):
            nvlinks += switched
        path = ask(first, "path", partial(_path, library, both), "")
        p2p = ask(first, "p2p", partial(_can, library, both, _READ), None)
        pairs.append(Pair(first, second, nvlinks, path, p2p))
    unknown = {
        index: list(dict.fromkeys(each.unknown))
        for index, each in questions.items()
        if each.unknown
    }
    return tuple(pairs), unknown


def _path(library: Library, both: tuple[Handle, Handle]) -> str:
    return PATHS.get(library.nvmlDeviceGetTopologyCommonAncestor(*both), "")


def _can(library: Library, both: tuple[Handle, Handle], what: int) -> bool | None:
    """Whether two cards reach each other in a way; None where the driver does not know."""
    status = library.nvmlDeviceGetP2PStatus(*both, what)
    return None if status == _UNKNOWN else bool(status == _OK)


def _own_bus_id(library: Library, card: Handle) -> str:
    return _bus_id(library.nvmlDeviceGetPciInfo(card).busId)


def _links(library: Library, card: Handle, known: set[str]) -> _Links:
    links = _Links()
    for link in range(MAX_LINKS):
        if not _is_active(library, card, link):
            continue
        kind = _remote_kind(library, card, link)
        # Where a switch is, not every driver tells; and nobody needs to know.
        remote = "" if kind == _TO_SWITCH else _remote(library, card, link)
        # An older driver does not tell the kind. What is no card of this box is a switch then;
        # whether two cards do reach each other through it, P2P says.
        if kind == _TO_SWITCH or (kind == _TO_UNKNOWN and remote not in known):
            links.switched += 1
        else:
            links.direct[remote] += 1
    return links


def _is_active(library: Library, card: Handle, link: int) -> bool:
    """Whether a link works; one that the card does not have does not."""
    try:
        return bool(library.nvmlDeviceGetNvLinkState(card, link))
    except library.NVMLError as error:
        no_link = code_of(error) == INVALID_ARGUMENT
        if no_link or condition_of(error) in {Condition.NOT_SUPPORTED, Condition.OLD_DRIVER}:
            return False
        raise


def _remote(library: Library, card: Handle, link: int) -> str:
    try:
        return _bus_id(library.nvmlDeviceGetNvLinkRemotePciInfo(card, link).busId)
    except library.NVMLError as error:
        # In a virtual machine that was given one card, the other end is hidden.
        if condition_of(error) in {Condition.NOT_SUPPORTED, Condition.OLD_DRIVER}:
            return ""
        raise


def _remote_kind(library: Library, card: Handle, link: int) -> int:
    try:
        return int(library.nvmlDeviceGetNvLinkRemoteDeviceType(card, link))
    except library.NVMLError as error:
        if condition_of(error) in {Condition.NOT_SUPPORTED, Condition.OLD_DRIVER}:
            return _TO_UNKNOWN
        raise


def _bus_id(value: str | bytes) -> str:
    return text(value).upper()
