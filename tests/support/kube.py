"""A small API server of Kubernetes with a kubelet: pods are processes of this host.

It stores objects, makes the pods of Jobs and JobSets, runs them, and serves their output and calls
in them. The volume claim is a directory, and Python with `lab` is the image.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.agents import ROOT

Object = dict[str, Any]
KINDS = {
    "pods": "Pod",
    "jobs": "Job",
    "jobsets": "JobSet",
    "configmaps": "ConfigMap",
    "services": "Service",
    "networkpolicies": "NetworkPolicy",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "events": "Event",
}
UNBOUND = "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims."
_PATH = re.compile(r"/(?:api|apis)/.*namespaces/([^/]+)/([a-z]+)(?:/([^/]+))?(?:/(exec|log))?")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
QUEUE = "kueue.x-k8s.io/queue-name"
_INDEX = "batch.kubernetes.io/job-completion-index"


@dataclass
class Cluster:
    """The objects of a cluster, and the processes of its pods.

    Attributes:
        folder: The directory of the volume, the pods' output and the kubeconfig.
        objects: The objects, by kind and name.
        missing: Kinds that this cluster does not have.
        before_start: Called with each new pod; it may set a status, so that the pod does not start.
        answers: Whether the server answers.
        data: The directory with the data of the image.
        quota: Why no pod of a Job can be created; "": they can.
        commands: The commands that were called in pods.
        modes: The access modes that its volumes can have.
        cordoned: Whether its node is closed to new pods; None: the user may not read nodes.
    """

    folder: Path
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    before_start: Callable[[Object], None] = lambda _pod: None
    answers: bool = True
    data: Path = Path("/nowhere")
    quota: str = ""
    commands: list[list[str]] = field(default_factory=list)
    modes: tuple[str, ...] = ("ReadWriteOnce", "ReadWriteMany")
    cordoned: bool | None = None
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    copies: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    calls: list[socket.socket] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)
    deleted: list[Object] = field(default_factory=list)
    count: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        for name in ("volume", "bin", "output"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "bin" / "python").symlink_to(sys.executable)

    def left(self) -> list[str]:
        files = (self.folder / "volume").rglob("*")
        names = [f"{kind}/{name}" for kind, name in self.objects if kind != "Event"]
        return [*names, *map(str, files)]

    def pod(self, task: str) -> Object:
        return next(each for each in self.objects.values() if _labels(each).get("lab.task") == task)

    def go_away(self) -> None:
        """Answer no more, and cut all calls in pods."""
        self.answers = False
        for each in self.calls:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    # ---- objects

    def create(self, kind: str, made: Object) -> tuple[int, Object]:
        with self.lock:
            name = made["metadata"]["name"]
            if kind in self.missing:
                return 404, _status("the server could not find the requested resource")
            if (kind, name) in self.objects:
                return 409, _status(f'{kind} "{name}" already exists')
            self.count += 1
            made["metadata"]["uid"] = f"uid-{self.count}"
            made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{self.count:06}Z"
            self.objects[kind, name] = made
            if kind == "Pod":
                self._start(made)
            if QUEUE in _labels(made):
                made["spec"]["suspend"] = True  # by Kueue
            else:
                self._make_pods(kind, made)
        return 201, made

    def _make_pods(self, kind: str, made: Object) -> None:
        name = made["metadata"]["name"]
        for index, template, suffix in _templates(kind, made):
            if self.quota:
                metadata = {"creationTimestamp": f"2026-01-01T00:00:{self.count:06}Z"}
                event = {"metadata": metadata, "message": self.quota}
                self.objects["Event", name] = {**event, "involvedObject": {"name": name}}
                continue
            labels = {_INDEX: str(index)} if index is not None else {}
            metadata = {
                "name": f"{name}-{suffix}",
                "labels": {**template["metadata"]["labels"], **labels},
                "owner": made["metadata"]["uid"],
            }
            self.create("Pod", {"metadata": metadata, "spec": dict(template["spec"])})

    def list(self, kind: str, selector: str, only: str = "") -> tuple[int, Object]:
        wanted = dict(each.split("=", 1) for each in selector.split(",") if each)
        with self.lock:
            if kind in self.missing:
                return 404, _status("the server could not find the requested resource")
            for name in [name for found, name in self.objects if found == "Pod"]:
                self._refresh(self.objects["Pod", name])
            found = [
                each
                for (other, name), each in self.objects.items()
                if other == kind and only in {"", name} and wanted.items() <= _labels(each).items()
            ]
            answer = json.loads(json.dumps({"items": found}))
            for each in found if kind == "JobSet" else []:
                if each["spec"].pop("suspend", False):  # Kueue admits it after the first look
                    self._make_pods(kind, each)
            return 200, answer

    def delete(self, kind: str, name: str, uid: str | None) -> tuple[int, Object]:
        with self.lock:
            found = self.objects.get((kind, name))
            if found is None:
                return 404, _status(f'{kind} "{name}" not found')
            if uid not in {None, found["metadata"]["uid"]}:
                return 409, _status("the UID in the precondition does not match")
            if kind == "Pod":
                found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.deleted.append(json.loads(json.dumps(found)))
                self._signal(name, signal.SIGTERM)
                return 200, _status("it ends")
            del self.objects[kind, name]
            if kind == "PersistentVolumeClaim":
                volume = self.folder / "volume"
                shutil.rmtree(volume) if volume.is_dir() else volume.unlink()
                volume.mkdir()
            for other, each in [*self.objects]:
                pod = self.objects[other, each]
                if pod["metadata"].get("owner") == found["metadata"]["uid"]:
                    self.delete(other, each, None)
            return 200, _status("deleted")

    def evict(self, task: str) -> None:
        """Evict a task's pod, as Kubernetes does since 1.26."""
        found = self.pod(task)
        why = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        found["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", **why}]
        self.delete("Pod", found["metadata"]["name"], None)

    # ---- the kubelet

    def environ(self, pod: Object) -> dict[str, str]:
        found: dict[str, str] = {}
        container = pod["spec"]["containers"][0]
        for each in container.get("envFrom", []):
            found |= self.objects["ConfigMap", each["configMapRef"]["name"]]["data"]
        for each in container["env"]:
            source = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            value = "node-1" if source == "spec.nodeName" else _labels(pod).get(_INDEX, "")
            value = value if source else each["value"]
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[each["name"]] = value
        found |= {
            "LAB_DATA": str(self.data),
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "LAB_TEST_MARKER": str(self.folder),
        }
        return {name: self.here(value) for name, value in found.items()}

    def here(self, text: str) -> str:
        """The text with the path of the volume on this host."""
        return re.sub(r"(?<![\w/])/runs\b", str(self.folder / "volume"), text)

    def output(self, pod: str) -> Path:
        return self.folder / "output" / pod

    def kill(self, task: str) -> None:
        self._signal(self.pod(task)["metadata"]["name"], signal.SIGKILL)

    def end(self, name: str, state: Object) -> None:
        """End a pod with this status, as the kubelet evicts it."""
        with self.lock:
            self._signal(name, signal.SIGKILL)
            self.processes.pop(name).wait()
            self.objects["Pod", name]["status"] = state

    def _start(self, pod: Object) -> None:
        pod["status"] = {"phase": "Pending"}
        self.processes.pop(pod["metadata"]["name"], None)  # of a pod before it
        self.before_start(pod)
        claims = [each for (kind, _), each in self.objects.items() if kind.endswith("Claim")]
        if any(mode not in self.modes for each in claims for mode in each["spec"]["accessModes"]):
            unbound = {"reason": "Unschedulable", "message": UNBOUND}
            pod["status"]["conditions"] = [{"type": "PodScheduled", **unbound}]
        if pod["status"] != {"phase": "Pending"}:
            return
        name = pod["metadata"]["name"]
        with self.output(name).open("wb") as output:
            # A pipe, as in a container: an agent begins the lines of a file with the time.
            copy = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output)
            with copy.stdin as pipe:
                self.processes[name] = subprocess.Popen(
                    pod["spec"]["containers"][0]["command"],
                    env=self.environ(pod),
                    stdin=subprocess.DEVNULL,
                    stdout=pipe,
                    stderr=pipe,
                    start_new_session=True,
                )
            self.copies[name] = copy
        pod["spec"]["nodeName"] = "node-1"
        pod["status"] = {"phase": "Running"}

    def _refresh(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        process = self.processes.get(name)
        ended = process is None or process.poll() is not None
        if "deletionTimestamp" in pod["metadata"] and ended:
            del self.objects["Pod", name]
        elif process is not None and ended:
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
            reason = {137: "OOMKilled", 0: "Completed"}.get(code, "Error")
            state = {"terminated": {"exitCode": code, "reason": reason}}
            phase = "Failed" if code else "Succeeded"
            pod["status"] = {"phase": phase, "containerStatuses": [{"state": state}]}
        elif process is not None:
            test = pod["spec"]["containers"][0]["startupProbe"]["exec"]["command"]
            done = subprocess.run(test, env=self.environ(pod), check=False)
            started = done.returncode == 0
            pod["status"]["containerStatuses"] = [{"started": started, "state": {"running": {}}}]

    def _signal(self, pod: str, number: int) -> None:
        if (process := self.processes.get(pod)) is not None and process.poll() is None:
            process.send_signal(number)

    def close(self) -> None:
        self.closed = True
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()


def _templates(kind: str, made: Object) -> Iterator[tuple[int | None, Object, str]]:
    """The templates of the pods of a Job or a JobSet, with the index and the end of the name."""
    if kind == "Job":
        yield None, made["spec"]["template"], "abcde"
    for each in made["spec"].get("replicatedJobs", []) if kind == "JobSet" else []:
        job = each["template"]["spec"]
        for index in range(job["completions"]):
            yield index, job["template"], f"{each['name']}-0-{index}-abcde"


def _labels(found: Object) -> Mapping[str, str]:
    return found["metadata"].get("labels", {})


def _status(message: str) -> Object:
    return {"kind": "Status", "message": message}


class _Handler(BaseHTTPRequestHandler):
    cluster: Cluster
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        pass

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_GET  # noqa: N815

    def _serve(self) -> None:
        cluster, url = self.cluster, urlsplit(self.path)
        query = parse_qs(url.query)
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else {}
        if not cluster.answers:
            self.close_connection = True
            return
        if url.path == "/version":
            self._answer(200, {"gitVersion": "v1.37.0"})
            return
        if url.path.startswith("/api/v1/nodes/"):
            node = {"spec": {"unschedulable": cluster.cordoned}}
            allowed = cluster.cordoned is not None
            self._answer(*((200, node) if allowed else (403, _status("nodes is forbidden"))))
            return
        found = _PATH.fullmatch(url.path)
        assert found, url.path
        kind, name, part = KINDS[found[2]], found[3], found[4]
        if part == "exec":
            self._exec(name, query["command"])
        elif part == "log":
            self._log(name, {key: values[0] for key, values in query.items()})
        elif self.command == "POST":
            self._answer(*cluster.create(kind, body))
        elif self.command == "DELETE":
            uid = body.get("preconditions", {}).get("uid")
            self._answer(*cluster.delete(kind, name, uid))
        elif "watch" in query:
            self._watch(kind, query["labelSelector"][0])
        else:
            field = query.get("fieldSelector", [""])[0].removeprefix("metadata.name=")
            name = field if kind == "Pod" else ""
            self._answer(*cluster.list(kind, query.get("labelSelector", [""])[0], name))

    def _answer(self, status: int, content: Object) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _watch(self, kind: str, selector: str) -> None:
        """Send objects, and each pod that is deleted, as long as the server answers."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        sent = len(self.cluster.deleted)
        changed = self.cluster.list(kind, selector)[1]["items"]
        while self.cluster.answers and not self.cluster.closed:
            for each in changed:
                data = json.dumps({"type": "MODIFIED", "object": each}).encode() + b"\n"
                try:
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                except OSError:
                    return
            time.sleep(0.05)
            changed = self.cluster.deleted[sent:]
            sent += len(changed)

    def _log(self, pod: str, query: Mapping[str, str]) -> None:
        if pod not in self.cluster.processes:
            self._answer(400, _status(f"container in pod {pod} is waiting to start"))
            return
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        position, path = 0, self.cluster.output(pod)
        if "sinceTime" in query:
            position = path.stat().st_size  # only of `--since 0s`
        if "tailLines" in query:
            last = path.read_bytes().splitlines(keepends=True)[-int(query["tailLines"]) :]
            position = path.stat().st_size - sum(map(len, last))
        while True:
            process = self.cluster.processes[pod]
            ended = process.poll() is not None
            if ended:
                self.cluster.copies[pod].wait()
            ended |= "follow" not in query
            data = path.read_bytes()[position:]
            position += len(data)
            try:
                self.wfile.write(data)
            except OSError:
                return
            if ended:
                return
            time.sleep(0.05)

    # ---- calls in a pod

    def _exec(self, pod: str, command: list[str]) -> None:
        key = self.headers["Sec-WebSocket-Key"].encode()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest())  # noqa: S324
        self.send_header("Sec-WebSocket-Accept", accept.decode())
        self.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
        self.end_headers()
        self.close_connection = True
        self.cluster.calls.append(self.connection)
        self.cluster.commands.append(command)
        lock = threading.Lock()
        process = subprocess.Popen(
            [self.cluster.here(each) for each in command],
            env=self.cluster.environ(self.cluster.objects["Pod", pod]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        pumps = [
            threading.Thread(target=self._pump, args=[number, stream, lock])
            for number, stream in ((1, process.stdout), (2, process.stderr))
        ]
        for each in pumps:
            each.start()
        threading.Thread(target=self._end, args=[process, pumps, lock]).start()
        with suppress(OSError, struct.error):
            while (frame := self._receive()) is not None:
                if frame[:1] == b"\0":
                    process.stdin.write(frame[1:])
                    process.stdin.flush()
        with suppress(OSError):
            process.stdin.close()
        process.wait()

    def _pump(self, channel: int, stream: Any, lock: threading.Lock) -> None:
        while data := os.read(stream.fileno(), 65536):
            with lock, suppress(OSError):
                self._send(bytes([channel]) + data)

    def _end(
        self, process: subprocess.Popen[bytes], pumps: list[threading.Thread], lock: threading.Lock
    ) -> None:
        for each in pumps:
            each.join()
        code = process.wait()
        causes = [{"reason": "ExitCode", "message": str(code)}]
        failed = {"status": "Failure", "message": "it failed", "details": {"causes": causes}}
        with lock, suppress(OSError):
            self._send(b"\3" + json.dumps(failed if code else {"status": "Success"}).encode())
            self._send(b"", opcode=8)

    def _send(self, data: bytes, opcode: int = 2) -> None:
        size = len(data)
        head = bytes([0x80 | opcode])
        head += bytes([size]) if size < 126 else b"\x7f" + struct.pack(">Q", size)
        self.wfile.write(head + data)

    def _receive(self) -> bytes | None:
        """The content of a frame; None if the client has closed the connection."""
        first, size = self.rfile.read(1), self.rfile.read(1)[0] & 0x7F
        if size >= 126:
            size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
        mask = self.rfile.read(4)
        data = bytes(each ^ mask[at % 4] for at, each in enumerate(self.rfile.read(size)))
        return None if first[0] & 0x0F == 8 else data


@contextmanager
def a_cluster(folder: Path) -> Iterator[Cluster]:
    """Serve a cluster on a port of the loopback; write its kubeconfig to `folder/config`."""
    cluster = Cluster(folder)
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [
            {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "course"}}
        ],
    }
    (folder / "config").write_text(json.dumps(config))
    try:
        yield cluster
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        cluster.close()
