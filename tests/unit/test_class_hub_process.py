"""The configuration file of JupyterHub, in a process; tests/e2e/test_class.py starts JupyterHub."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from lab.classroom import hub_process
from lab.variables import LAB_CLASS
from tests.support.agents import PATIENCE_S, ROOT
from tests.support.classes import created, own_state  # noqa: F401

PROGRAM = """
import json, resource, runpy, sys, time
from pathlib import Path
from tornado.httpserver import HTTPServer
from traitlets.config import Config

c, log = Config(), Path(sys.argv[2])
runpy.run_path(sys.argv[1], {"get_config": lambda: c})
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
limits = HTTPServer(print).conn_params
while log.stat().st_size > 1_000_000:
    time.sleep(0.01)
print(json.dumps({
    "sign in": c.JupyterHub.authenticator_class,
    "body": [limits.max_body_size, limits.body_timeout, limits.header_timeout],
    "all files": soft == hard,
}))
"""


def test_no_user_fills_the_memory_the_log_or_the_connections_of_jupyterhub() -> None:
    folder = created()
    folder.log.write_bytes(b"x" * 11_000_000)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(hub_process._HUB_CONFIG), str(folder.log)],
        cwd=ROOT,
        env={**os.environ, LAB_CLASS: "w"},
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    assert json.loads(done.stdout) == {
        "sign in": "lab.classroom.sign_in.SeatAuthenticator",
        "body": [1 << 20, 10, 60],
        "all files": True,
    }
