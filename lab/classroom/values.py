"""The values of a class config that are texts: names, times, networks, addresses, sizes."""

from __future__ import annotations

import re
from datetime import timedelta
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from pydantic import BeforeValidator

from lab import units as sizes
from lab.config.fields import MAX_PORT, amount, text_of
from lab.units import duration_s

SEAT_PREFIX: Final = 28
"""Prefix length of the network of a seat, of the proxy, and of a run: 13 addresses are free."""

PRIVATE: Final = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))
_NAME: Final = re.compile("[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?")
_LABEL: Final = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
# A name has at most 253 characters, with that of a seat in front. An IP address is none.
_DOMAIN: Final = re.compile(rf"(?=.{{1,200}}$)({_LABEL}\.)+(?!\d+$){_LABEL}")
_ADDRESS: Final = re.compile(r"([0-9.]+):([0-9]{1,5})")
_LONGEST_SLICE_S: Final = 24 * 3600

_NAME_TEXT: Final = "lower-case letters, digits and hyphens, at most 20, no hyphen at an end"
_SLICE_TEXT: Final = "a duration such as 10m or 1h30m, from 1s to 24h"
_NETWORK_TEXT: Final = "a private IPv4 network such as 10.89.0.0/16, of /28 or larger"
_DOMAIN_TEXT: Final = "a DNS name in lower-case letters, such as lab.example.org"
_ADDRESS_TEXT: Final = "an IPv4 address and a port, such as 127.0.0.1:8000"
_DISK_TEXT: Final = "an amount such as 5GiB or 512MiB, from 64MiB to 64TiB"


class Address(NamedTuple):
    """The address of a listening socket."""

    host: IPv4Address
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def _matching(pattern: re.Pattern[str], expected: str) -> BeforeValidator:
    """Return a validator of texts that match a pattern as a whole."""

    def read(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(expected)
        return text

    return text_of(read, expected)


def _slice(text: str) -> timedelta:
    seconds = duration_s(text)
    if seconds is None or not 1 <= seconds <= _LONGEST_SLICE_S:
        raise ValueError(_SLICE_TEXT)
    return timedelta(seconds=seconds)


def _network(text: str) -> IPv4Network:
    found = IPv4Network(text)
    if found.prefixlen > SEAT_PREFIX or not any(map(found.subnet_of, PRIVATE)):
        raise ValueError(_NETWORK_TEXT)
    return found


def _address(text: str) -> Address:
    found = _ADDRESS.fullmatch(text)
    if not found or not 1 <= int(found[2]) <= MAX_PORT:
        raise ValueError(_ADDRESS_TEXT)
    return Address(IPv4Address(found[1]), int(found[2]))


def _path(text: str) -> Path:
    if not text or "\0" in text:
        raise ValueError
    return Path(text)


Disk = Annotated[int, amount(sizes.MEMORY, _DISK_TEXT, 64 * sizes.MIB, 64 * sizes.TIB)]
Slice = Annotated[timedelta, text_of(_slice, _SLICE_TEXT)]
ClassName = Annotated[str, _matching(_NAME, _NAME_TEXT)]
DomainName = Annotated[str, _matching(_DOMAIN, _DOMAIN_TEXT)]
PrivateNetwork = Annotated[IPv4Network, text_of(_network, _NETWORK_TEXT)]
ListenAddress = Annotated[Address, text_of(_address, _ADDRESS_TEXT)]
FilePath = Annotated[Path, text_of(_path, "the path of a file")]
