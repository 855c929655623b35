"""Hints for programs that fail because a pseudo-cluster is not what they expect."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import disk_usage
from typing import Final

from lab.records.error_line import CHECKPOINT_PART
from lab.units import memory_for_people

NO_INTERNET: Final = "tasks have no Internet"
DOWNLOAD: Final = f"{NO_INTERNET}; put the file beside the program or into data/"
CHIEF: Final = "give the config a job named chief, as in clusters/estimator.yaml"
KERAS_2: Final = "this is Keras 3; for a program of Keras 2 add --framework tensorflow-2.15"
ONE_FILE: Final = "another task has opened the same file; let only one task write it"
FEWER_TASKS: Final = (
    "the cluster in the program has fewer tasks than the config;"
    " use a config with the program's tasks"
)
NO_GPU: Final = "the task has no GPU; use a config with GPUs, or test torch.cuda.is_available()"

_SHM: Final = Path("/dev/shm")  # noqa: S108  (the tasks' own)
_SHM_SIZE: Final = memory_for_people(disk_usage(_SHM).total) if _SHM.exists() else "none"
SHARED_MEMORY: Final = (
    f"{_SHM} has {_SHM_SIZE}; in containers, `shm` of a node in the config sets it"
)

# Messages of a host that was not found or not reached. An HTTP error is an answer of the host.
_NO_ADDRESS: Final = r"Name or service not known|name resolution|No address|unreachable|No route to"
# The URL names a file, and the program reads the file's copy, or reads the URL like a path.
_FILE: Final = re.compile(
    r"URL fetch failure on \S+ (?!\d{3} )"  # Keras: "…: None -- [Errno -2] …", "…: 404 -- …"
    r"|libcurl code (?:5|6|7|28) "  # tf.io, for gs:// and https://
    r"|File system scheme '(?:gs|s3|https?|hdfs)' not implemented"
)
_NO_ANSWER: Final = re.compile(
    rf"<urlopen error .*(?:{_NO_ADDRESS}|timed out|Tunnel connection failed)"
    rf"|\b(?:gaierror|ConnectError|ConnectionError|OSError): .*(?:{_NO_ADDRESS})"
    r"|HTTPS?ConnectionPool\(host='(?!localhost'|127\.)[^']*', port=\d+\): Max retries exceeded"
    r"|ClientConnectorError: Cannot connect to host "
    r"|LocalEntryNotFoundError: |couldn't connect to 'https?://"  # Hugging Face
)


_HINTS: Final = (
    (_FILE, DOWNLOAD),
    (_NO_ANSWER, NO_INTERNET),
    # Estimator's RunConfig.
    (re.compile(r'"cluster" is set in TF_CONFIG, it must have one "chief" node'), CHIEF),
    (
        re.compile(r'Task \d+ was not defined in job "|Job "[^"]*" was not defined in cluster'),
        FEWER_TASKS,
    ),
    (re.compile(r"KerasTensor|Keras 3\b|module 'keras\.(?!api)[\w.]*' has no|\{'lr': "), KERAS_2),
    (
        re.compile(
            r"out of shared memory|insufficient shared memory|shared memory\(shm\)"
            r"|</torch_\S+>: No space left|/dev/shm/\S+.*No space left"
        ),
        SHARED_MEMORY,
    ),
    (
        re.compile(
            r"doesn't have NCCL built in|'_cuda_setDevice'|Torch not compiled with CUDA"
            r"|Found no NVIDIA driver|No CUDA GPUs are available|no GPUs found"
        ),
        NO_GPU,
    ),
    # HDF5 locks a file; its tasks share a directory, unlike those of several hosts.
    (re.compile(r"\[Errno 11\] Unable to .*lock file"), ONE_FILE),
)


_CHECKPOINT_PART: Final = re.compile(
    rf"(\S+?)/[^/\s;]+(?:{CHECKPOINT_PART})"
    r"(?:; No such file or directory| did not exist| not found)"
)


def explained(message: str, ps_count: int) -> tuple[str, str]:
    """Return what a failed program's message means, and how to fix it; "" if that is not known.

    Each parameter server writes its part of a checkpoint, and one task joins the parts. This fails
    if each task has its own copy of the directory, such as `/tmp` in containers.

    Args:
        message: The line with the reason of the failure.
        ps_count: The number of the cluster's parameter servers.
    """
    part = _CHECKPOINT_PART.search(message)
    if part and ps_count:
        who = "parameter servers do" if ps_count > 1 else "parameter server and the workers do"
        return f"the {who} not share {part[1]}", "use a relative path"
    fix = next((hint for error, hint in _HINTS if error.search(message)), "")
    return message.rstrip(".") if fix else message, fix
