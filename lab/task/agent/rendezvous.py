"""Horovod's rendezvous, as a process: `python -m lab.task.agent.rendezvous HOST FILE ATTEMPT`.

It is an HTTP server at which the ranks register the ports of their rings. It takes a free port of
the host and writes the attempt and the port to the file. Its agent ends it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

from lab.volume.files import write_atomically


def main(arguments: Sequence[str]) -> None:
    """Serve until a signal ends the process.

    Raises:
        OSError: The host has no free port, or the file cannot be written.
    """
    host, path, attempt = arguments
    server = RendezvousHTTPServer((host, 0), RendezvousHandler, verbose=0)
    write_atomically(Path(path), f"{attempt} {server.server_address[1]}", durable=False)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
