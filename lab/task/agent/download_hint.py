"""The hint for a program that fails because tasks have no Internet."""

from __future__ import annotations

import re
from typing import Final

HINT: Final = "tasks have no Internet; put the file beside the program or into data/"

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


def download_hint(error_line: str) -> str:
    """Return "; " and the hint if an error is a failed download; else "".

    Args:
        error_line: The line with the reason of the failure.
    """
    return f"; {HINT}" if _FAILED_DOWNLOAD.search(error_line) else ""
