"""The hints for failed programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.task.agent.failure_hints import CHIEF, DOWNLOAD, FEWER_TASKS, ONE_FILE, failure_hint
from lab.task.agent.outcomes import failed
from lab.task.agent.output import Output
from lab.task.agent.process import OomKills
from lab.task.agent.record_tags import RecordTags
from lab.volume import TaskStatus

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/train-labels-idx1-ubyte.gz"


DOWNLOADS = [
    f"Exception: URL fetch failure on {URL}: None -- [Errno -2] Name or service not known",
    f"Exception: URL fetch failure on {URL}: None -- [Errno -3] Temporary failure in name resol",
    "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
    "urllib.error.URLError: <urlopen error Tunnel connection failed: 403 Forbidden>",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='storage.googleapis.com',"
    " port=443): Max retries exceeded with url: /tfds-data/… (502 characters)",
    "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='www.kaggle.com', port=443):"
    " Max retries exceeded with url: /api/v1/datasets (Caused by NewConnectionError(",
    "tensorflow.python.framework.errors_impl.UnavailableError: Error executing an HTTP request:"
    " libcurl code 6 meaning 'Couldn't resolve host name', error details: Could not resolve",
    "tensorflow.python.framework.errors_impl.UnimplementedError: File system scheme 'gs' not"
    " implemented (file: 'gs://bucket/x')",
    "main.py:3: socket.gaierror: [Errno -2] Name or service not known",
    "httpx.ConnectError: [Errno -2] Name or service not known",
    "OSError: We couldn't connect to 'https://huggingface.co' to load this file",
]
NO_HINT = [
    f"Exception: URL fetch failure on {URL}: 404 -- Not Found",
    "urllib.error.HTTPError: HTTP Error 404: Not Found",
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    "requests.exceptions.ConnectionError: HTTPConnectionPool(host='localhost', port=8500): Max"
    " retries exceeded with url: /v1 (Caused by NewConnectionError('[Errno 111] Connection ref",
    "tensorflow.python.framework.errors_impl.UnavailableError: failed to connect to all"
    " addresses; last error: UNKNOWN: ipv4:10.77.0.2:2222: No route to host",
    "tensorflow.python.framework.errors_impl.NotFoundError: gs.csv; No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: 'https.csv'",
    "BlockingIOError: [Errno 11] Resource temporarily unavailable",
    "ValueError: no chief node",
]
NO_CHIEF = 'ValueError: If "cluster" is set in TF_CONFIG, it must have one "chief" node.'
OTHERS = {
    f"a.py:3: {NO_CHIEF}": CHIEF,
    "BlockingIOError: [Errno 11] Unable to synchronously create file (unable to lock file,"
    " errno = 11, error message = 'Resource temporarily unavailable')": ONE_FILE,
    "OSError: [Errno 11] Unable to open file (unable to lock file, errno = 11)": ONE_FILE,
    'main.py:31: InternalError: Task 2 was not defined in job "worker"': FEWER_TASKS,
    'main.py:31: InternalError: Job "ps" was not defined in cluster': FEWER_TASKS,
}


@pytest.mark.parametrize(
    ("line", "hint"),
    [(line, DOWNLOAD) for line in DOWNLOADS] + [(line, "") for line in NO_HINT] + [*OTHERS.items()],
)
def test_errors_have_hints(line: str, hint: str) -> None:
    assert failure_hint(line) == (f"; {hint}" if hint else "")


def test_the_reason_of_a_real_failure_has_a_hint_or_names_the_fault(tmp_path: Path) -> None:
    source = "import urllib.request; urllib.request.urlopen('http://nothing.invalid/x')"
    ended = subprocess.run(
        [sys.executable, "-c", source],
        env={},  # no proxy
        capture_output=True,
        timeout=60,
        check=False,
    )
    reading, writing = os.pipe()
    os.close(writing)
    tags = RecordTags("r1", 0, "worker", 0)
    output = Output(reading, tmp_path / "t.jsonl", tmp_path / "t.log", lambda _data: None, tags)
    for line in ended.stderr.splitlines():
        output.error_lines.feed(line)
    none = OomKills(None, None)
    assert failed(1, output, (none, none)).reason.endswith(f"; {DOWNLOAD}")
    output.error_lines.feed(NO_CHIEF.encode())
    assert failed(1, output, (none, none)).reason.endswith(f'"chief" node; {CHIEF}')
    output.error_lines.feed(b"NotFoundError: t/model.ckpt-0_temp; No such file or directory")
    unshared = failed(1, output, (none, none), ps_count=2)
    assert unshared.reason == "the parameter servers do not share t; use a relative path"
    injected = failed(143, output, (none, none), ps_count=2, fault="stop worker-1")
    assert injected.reason == "exit code 143 (the injected fault `stop worker-1`)"
    for outcome in (unshared, injected):  # as the agent reports it
        status = TaskStatus("worker-0", outcome.state, reason=outcome.reason)
        assert TaskStatus.from_json(status.to_json()).reason == outcome.reason
    os.close(reading)
