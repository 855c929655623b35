"""JupyterHub's configuration of one class; `lab class up` starts JupyterHub with it."""

from __future__ import annotations

import resource
import threading
import time
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer

from lab.teach.classroom.class_dir import ClassDir
from lab.teach.classroom.hub import configure

# A seat can send anything to JupyterHub without a token. Legitimate requests are small.
HTTPServer.configure(None, max_body_size=1 << 20, body_timeout=10, idle_connection_timeout=60)
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def bound_log(folder: ClassDir) -> None:
    """Keep the output of this process within its limit."""
    while True:
        folder.bound_log()
        time.sleep(1)


c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  (JupyterHub defines it)
class_dir = ClassDir(Path.cwd().name)  # JupyterHub starts in the directory of its class
configure(c, class_dir)
threading.Thread(target=bound_log, args=[class_dir], daemon=True).start()
