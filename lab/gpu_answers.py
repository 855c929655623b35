"""Texts and codes in the answers of the GPU probe, for the probe and for the client."""

from __future__ import annotations

import re
from typing import Final

NO_LIBCUDA: Final = "no libcuda.so.1"
"""The reason for `cuda` on a host without a driver, where no program can use a GPU."""

UNKNOWN_ERROR: Final = 999
LOST: Final = {15: "GPU is lost", UNKNOWN_ERROR: "Unknown Error"}
"""NVML's error codes for a lost GPU, with NVML's texts."""

CUDA_CODE: Final = re.compile(r": error (\d+) \(")
"""Finds CUDA's error code in a reason."""

NOT_ASKED: Final = "not requested"
SHOWS_WHOLE_HOST: Final = "shows the whole host, not this task"
VARIABLES: Final = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
