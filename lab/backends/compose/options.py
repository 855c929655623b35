"""The options of a compose file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lab.backends.options import Values


@dataclass(frozen=True, slots=True)
class ComposeOptions:
    """The options of a compose file.

    Attributes:
        gpus_by: How GPUs are requested of the engine: `nvidia` or `cdi`.
        network: The cluster's network: `portable` or `isolated`.
        subnet: The range of its addresses, such as `10.89.1.0/28`; "": the engine chooses one. No
            user has this option.
    """

    gpus_by: str = "nvidia"
    network: str = "portable"
    subnet: str = ""

    def values(self) -> Values:
        """Return the values of `-o`."""
        return {"gpus-by": self.gpus_by, "network": self.network}


DEFAULTS: Final = ComposeOptions()
