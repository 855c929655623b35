"""The hints for failed programs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from lab.protocol.volume import TaskStatus
from lab.task.agent.outcomes import (
    CHIEF,
    DOWNLOAD,
    FEWER_TASKS,
    KERAS_2,
    NO_GPU,
    NO_INTERNET,
    ONE_FILE,
    SHARED_MEMORY,
    ProgramEnd,
    explained,
    failed,
)
from lab.task.agent.output_parser import OutputParser, RecordTags

URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/train-labels-idx1-ubyte.gz"


DOWNLOADS = [
    f"Exception: URL fetch failure on {URL}: None -- [Errno -2] Name or service not known",
    f"Exception: URL fetch failure on {URL}: None -- [Errno -3] Temporary failure in name resol",
    "tensorflow.python.framework.errors_impl.UnavailableError: Error executing an HTTP request:"
    " libcurl code 6 meaning 'Couldn't resolve host name', error details: Could not resolve",
    "tensorflow.python.framework.errors_impl.UnimplementedError: File system scheme 'gs' not"
    " implemented (file: 'gs://bucket/x')",
]
# The program does not look for a file: it may ask a package index, a model hub or an API.
REQUESTS = [
    "urllib.error.URLError: <urlopen error [Errno 101] Network is unreachable>",
    "urllib.error.URLError: <urlopen error Tunnel connection failed: 403 Forbidden>",
    "socket.gaierror: [Errno -3] Temporary failure in name resolution",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='pypi.org', port=443): Max"
    " retries exceeded with url: /simple/torch/ (Caused by NewConnectionError(",
    "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='www.kaggle.com', port=443):"
    " Max retries exceeded with url: /api/v1/datasets (Caused by NewConnectionError(",
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
    "AttributeError: module 'keras.api._v2.keras' has no attribute 'x'",  # of Keras 2
    "KeyError: {'lr'}",
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456",
]
KERAS_3 = [
    "a.py:4: ValueError: A KerasTensor cannot be used as input to a TensorFlow function. A KerasTe",
    "a.py:4: AttributeError: 'KerasTensor' object has no attribute 'get_shape'",
    "a.py:4: ImportError: `keras.optimizers.legacy` is not supported in Keras 3. When using `tf.",
    "AttributeError: module 'keras._tf_keras.keras.backend' has no attribute 'set_session'",
    "ValueError: Argument(s) not recognized: {'lr': 0.1}",
]
NO_CHIEF = 'ValueError: If "cluster" is set in TF_CONFIG, it must have one "chief" node.'
OTHERS = {
    f"a.py:3: {NO_CHIEF}": CHIEF,
    "BlockingIOError: [Errno 11] Unable to synchronously create file (unable to lock file,"
    " errno = 11, error message = 'Resource temporarily unavailable')": ONE_FILE,
    "OSError: [Errno 11] Unable to open file (unable to lock file, errno = 11)": ONE_FILE,
    'main.py:31: InternalError: Task 2 was not defined in job "worker"': FEWER_TASKS,
    'main.py:31: InternalError: Job "ps" was not defined in cluster': FEWER_TASKS,
    "RuntimeError: DataLoader worker (pid 61) is killed by signal: Bus error. It is possible that"
    " dataloader's workers are out of shared memory. Please try to raise": SHARED_MEMORY,
    "RuntimeError: unable to write to file </torch_61_2>: No space left on device": SHARED_MEMORY,
    "RuntimeError: Distributed package doesn't have NCCL built in": NO_GPU,
    "AttributeError: module 'torch._C' has no attribute '_cuda_setDevice'": NO_GPU,
    "AssertionError: Torch not compiled with CUDA enabled": NO_GPU,
    "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!": NO_GPU,
}


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        *((line, DOWNLOAD) for line in DOWNLOADS),
        *((line, NO_INTERNET) for line in REQUESTS),
        *((line, KERAS_2) for line in KERAS_3),
        *((line, "") for line in NO_HINT),
        *OTHERS.items(),
    ],
)
def test_errors_have_hints(line: str, hint: str) -> None:
    assert explained(line, 0) == (line.rstrip(".") if hint else line, hint)


def test_the_reason_of_a_real_failure_has_a_hint_or_names_the_fault() -> None:
    source = "import urllib.request; urllib.request.urlopen('http://nothing.invalid/x')"
    ended = subprocess.run(
        [sys.executable, "-c", source],
        env={},  # no proxy
        capture_output=True,
        timeout=60,
        check=False,
    )
    parser = OutputParser(RecordTags("r1", 0, "worker", 0))
    parser.parse(ended.stderr.splitlines(), 0.0, 0.0)
    line = parser.error_lines.error_line()
    assert failed(ProgramEnd(1, line)).reason.endswith(f"; {NO_INTERNET}")
    assert failed(ProgramEnd(1, NO_CHIEF)).reason.endswith(f'"chief" node; {CHIEF}')
    unshared = failed(
        ProgramEnd(1, "NotFoundError: t/model.ckpt-0_temp; No such file or directory"), ps_count=2
    )
    assert unshared.reason == "the parameter servers do not share t; use a relative path"
    for outcome in (unshared, failed(ProgramEnd(143, line, fault="stop worker-1"))):
        status = TaskStatus("worker-0", outcome.state, reason=outcome.reason)
        assert TaskStatus.from_json(status.to_json()).reason == outcome.reason


BEFORE_2_21 = "a.py:28: NotFoundError: train/model.ckpt-0_temp; No such file or directory"
# If each server has the directory.
SINCE_2_21 = (
    "a.py:28: InvalidArgumentError: allow_missing_files was set to false and"
    " /tmp/train/model.ckpt-0_temp/part-00000-of-00002 did not exist.NOT_FOUND:"
    " /tmp/train/model.ckpt-0_temp/part-00000-of-00002 not found"
)
FORMAT_1 = "NotFoundError: t/m.ckpt-0-00001-of-00002.tempstate12; No such file or directory"


@pytest.mark.parametrize(
    ("message", "ps_count", "who", "what"),
    [
        (BEFORE_2_21, 2, "the parameter servers do", "train"),
        (SINCE_2_21, 2, "the parameter servers do", "/tmp/train"),
        (FORMAT_1, 1, "the parameter server and the workers do", "t"),
        ("NotFoundError: t/m.ckpt-0_temp; No such file or directory", 0, "", ""),
        ("NotFoundError: data/train.csv; No such file or directory", 2, "", ""),
        ("ValueError: t/m.ckpt-0_temp exists", 2, "", ""),
    ],
)
def test_a_checkpoint_directory_that_is_not_shared(
    message: str, ps_count: int, who: str, what: str
) -> None:
    expected = (f"{who} not share {what}", "use a relative path") if who else (message, "")
    assert explained(message, ps_count) == expected
