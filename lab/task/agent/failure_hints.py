"""Hints for programs that fail because a pseudo-cluster is not what they expect."""

from __future__ import annotations

import re
from typing import Final

from lab.records.error_line import CHECKPOINT_PART

DOWNLOAD: Final = "tasks have no Internet; put the file beside the program or into data/"
CHIEF: Final = "give the config a job named chief, as in clusters/estimator.yaml"
ONE_FILE: Final = "another task has opened the same file; let only one task write it"
FEWER_TASKS: Final = (
    "the cluster in the program has fewer tasks than the config;"
    " use a config with the program's tasks"
)

# Messages of a host that was not found or not reached. An HTTP error is an answer of the host.
_NO_ADDRESS: Final = (
    r"Name or service not known|Temporary failure in name resolution|No address associated with"
    r"|Name does not resolve|nodename nor servname provided|Network is unreachable|No route to host"
)
_FAILED_DOWNLOAD: Final = re.compile(
    r"URL fetch failure on \S+ (?!\d{3} )"  # Keras: "…: None -- [Errno -2] …", "…: 404 -- …"
    rf"|<urlopen error (?:\[Errno -?\d+\] )?(?:{_NO_ADDRESS}|timed out|Tunnel connection failed)"
    rf"|\b(?:gaierror|ConnectError|ConnectionError|OSError): .*(?:{_NO_ADDRESS})"
    r"|HTTPS?ConnectionPool\(host='(?!localhost'|127\.)[^']*', port=\d+\): Max retries exceeded"
    r"|ClientConnectorError: Cannot connect to host "
    r"|libcurl code (?:5|6|7|28) "  # tf.io, for gs:// and https://
    r"|File system scheme '(?:gs|s3|https?|hdfs)' not implemented"
    r"|LocalEntryNotFoundError: |couldn't connect to 'https?://"  # Hugging Face
)


_HINTS: Final = (
    (_FAILED_DOWNLOAD, DOWNLOAD),
    # Estimator's RunConfig.
    (re.compile(r'"cluster" is set in TF_CONFIG, it must have one "chief" node'), CHIEF),
    (
        re.compile(r'Task \d+ was not defined in job "|Job "[^"]*" was not defined in cluster'),
        FEWER_TASKS,
    ),
    # HDF5 locks a file; its tasks share a directory, unlike those of several hosts.
    (re.compile(r"\[Errno 11\] Unable to .*lock file"), ONE_FILE),
)


def failure_hint(error_line: str) -> str:
    """Return "; " and the hint for an error; "" if there is none.

    Args:
        error_line: The line with the reason of the failure.
    """
    return next((f"; {hint}" for error, hint in _HINTS if error.search(error_line)), "")


_CHECKPOINT_PART: Final = re.compile(
    rf"(\S+?)/[^/\s;]+(?:{CHECKPOINT_PART})"
    r"(?:; No such file or directory| did not exist| not found)"
)


def unshared_directory(message: str, ps_count: int) -> str | None:
    """Explain a checkpoint that parameter servers write into a directory of their own.

    Each parameter server writes its part of a checkpoint, and one task joins the parts. This fails
    if each task has its own copy of the directory, such as `/tmp` in containers.

    Args:
        message: The message of an exception.
        ps_count: The number of the cluster's parameter servers.
    """
    part = _CHECKPOINT_PART.search(message)
    if part is None or not ps_count:
        return None
    who = "the parameter servers do" if ps_count > 1 else "the parameter server and the workers do"
    return f"{who} not share {part[1]}; use a relative path"
