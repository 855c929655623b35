"""What the engine and compose complain of, in the user's words, each with its mend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lab.errors import LabError
from lab.task.text import short


@dataclass(frozen=True, slots=True)
class Hint:
    """One kind of failure.

    Attributes:
        pattern: Found in the engine's or compose's own words.
        what: What is wrong; `{0}` is the pattern's first group.
        fix: How to fix it; `{0}` likewise.
    """

    pattern: re.Pattern[str]
    what: str
    fix: str


def _complaint(pattern: str, what: str, fix: str) -> Hint:
    return Hint(re.compile(pattern, re.IGNORECASE), what, fix)


# In the order in which they are tried: the cause before what follows from it.
HINTS: Final = (
    _complaint(
        r"no space left on device",
        "the disk is full",
        "see `docker system df`, free some with `docker image prune` and `docker builder prune`",
    ),
    _complaint(
        r"could not select device driver \"+nvidia|unknown or invalid runtime name: nvidia"
        r"|nvidia-container-cli: initialization error|failed to discover GPU vendor",
        "the engine cannot hand out NVIDIA GPUs, which this description pins",
        "install the NVIDIA driver and container toolkit, or run on CPUs with `--gpus none`",
    ),
    _complaint(
        r"nvidia-container-cli: device error: (\S+?):? unknown device"
        r"|unresolvable CDI devices (\S+)",
        "the box has no GPU {0}",
        "the description was placed on another box: render it again here, `--gpus uuid`",
    ),
    _complaint(
        r"Requested CPUs are not available - requested (\S+),",
        "the box has no CPUs {0}",
        "the description was placed on another box: render it again here",
    ),
    _complaint(
        r"permission denied while trying to connect to the docker (?:daemon|API)",
        "no permission to talk to the Docker engine",
        "join its group with `sudo usermod -aG docker $USER`, then log in again",
    ),
    _complaint(
        r"cannot connect to the docker daemon|failed to connect to the docker API"
        r"|error during connect",
        "no Docker engine answers",
        "start it with `sudo systemctl start docker`, or use `--backend local`",
    ),
    _complaint(
        r"non-overlapping IPv4 address pool|all predefined address pools have been fully subnetted",
        "the engine has no address range left for another network",
        "remove networks that nobody uses with `docker network prune`",
    ),
    _complaint(
        r"Pool overlaps with other one on this address space",
        "the network's address range is in use by another network",
        "see `docker network ls`, and remove the one that nobody uses",
    ),
    _complaint(
        r"Bind for (\S+) failed: port is already allocated|listen tcp\S* (\S+): bind: address",
        "the address {0} is in use",
        "end what listens there, or choose another port",
    ),
    _complaint(
        r"bind source path does not exist: (\S+)",
        "the folder {0} is missing",
        "make it; the containers see the project's scripts/ and data/",
    ),
    _complaint(
        r"failed to read dockerfile|unable to prepare context|(?:stat|open) \S*Dockerfile\.gpu",
        "Dockerfile.gpu is missing",
        "stand in the project's folder, where the image can be built",
    ),
    _complaint(
        r"Could not find a version that satisfies the requirement (\S+)",
        "pip finds no {0} for the image",
        "check LAB_TENSORFLOW, and whether a build can reach the Python package index "
        "(LAB_BUILD_NETWORK=host lets it use this machine's own network)",
    ),
    _complaint(
        r"(?:failed to do request|failed to resolve source metadata|failed to authorize).*"
        r"|load metadata for (\S+): *(?:ERROR|failed)|pull access denied for (\S+?),",
        "the base image cannot be fetched",
        "where no registry can be reached, `tools/base-image.sh` makes one: "
        "then set LAB_BASE_IMAGE=lab-base:bookworm",
    ),
    _complaint(
        r"No such image: (\S+)",
        "there is no image {0}",
        "build it with `lab build`",
    ),
    _complaint(
        r"unknown shorthand flag: 'p' in -p|'compose' is not a docker command"
        r"|unknown command: docker compose",
        "docker has no compose plugin",
        "install it, `docker-compose-plugin` or `docker-compose-v2`, or use `--backend local`",
    ),
)

_NOISE = re.compile(
    r"^(?:time=\S+ level=warning|#\d+ (?:DONE|CACHED|sha256:)|-+$|exit status \d+$"
    r"|ERROR: executor failed running|failed to solve: executor failed)",
)


def explain(doing: str, lines: Sequence[str]) -> LabError:
    """The error for a failure of the engine or of compose.

    Args:
        doing: What was being done: `building the image`.
        lines: Its own words, oldest first, as they came.

    Returns:
        One that names cause and mend where they are known, else the last telling line.
    """
    text = "\n".join(lines)
    for complaint in HINTS:
        match = complaint.pattern.search(text)
        if match:
            named = short(next((group for group in match.groups() if group), ""))
            return LabError(
                f"{doing}: {complaint.what.replace('{0}', named)}",
                complaint.fix.replace("{0}", named),
            )
    telling = [line.strip() for line in lines if line.strip() and not _NOISE.match(line.strip())]
    last = short(telling[-1]) if telling else "it failed without a word"
    return LabError(f"{doing}: {last}", "see the lines above" if len(telling) > 1 else "")
