"""A private Kubernetes: etcd, the control plane and one kubelet, in this process's namespaces.

`tests.kubernetes.__main__` makes the namespaces. Ports and names are therefore fixed: no other
process of the host sees them.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.kubernetes import names
from tests.kubernetes.api import Api
from tests.support import engine as engines

NODE: Final = "node-1"
PORT: Final = 6443
CGROUP: Final = "lab-kubernetes"
"""The control group of all pods, which `tests.kubernetes.__main__` makes and removes."""

PAUSE: Final = "lab-pause:tests"
NAMESPACE: Final = "lab"
USER: Final = 1000
"""The user of the image."""

KUBECONFIGS: Final = ("", "authentication-", "authorization-")
NEWER_PLUGINS: Final = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
START_S: Final = 180.0
STOP_S: Final = 60.0
_POLL_S: Final = 0.2


class KubernetesError(Exception):
    """The private Kubernetes does not do what a test waits for; the message says what."""


@dataclass
class Site:
    """A Kubernetes that answers."""

    home: Path
    programs: Path
    engine: Mapping[str, str]
    address: str
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    _commands: dict[str, list[str]] = field(default_factory=dict)
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def api(self) -> Api:
        certificate = self.home / "apiserver/apiserver.crt"
        return Api(f"https://{self.address}:{PORT}", certificate, self.token)

    @property
    def kubeconfig(self) -> Path:
        return self.home / "kubeconfig"

    @property
    def access(self) -> dict[str, str]:
        """The variables by which `lab` finds this Kubernetes, and no engine.

        In the engine, a pod's container has its labels: as a container of `lab`, it would be
        listed twice.
        """
        return {"KUBECONFIG": str(self.kubeconfig), "DOCKER_HOST": "unix:///nowhere"}

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a daemon, or start it again with its command of before."""
        if command:
            self._commands[name] = [*command]
        with (self.home / f"{name}.log").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._commands[name]],
                env={**os.environ, **self.engine},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._daemons[name]

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        daemon = self._daemons.pop(name)
        daemon.send_signal(how)
        try:
            daemon.wait(STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def check(self) -> None:
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                log = (self.home / f"{name}.log").read_text(errors="replace")[-3000:]
                raise KubernetesError(f"{name} ended with {daemon.returncode}:\n{log}")

    def wait(self, condition: Callable[[], bool], what: str, patience_s: float) -> None:
        """Wait until a condition holds, while all daemons run, or `KubernetesError`."""
        until = time.monotonic() + patience_s
        while not condition():
            self.check()
            if time.monotonic() > until:
                raise KubernetesError(f"after {patience_s:.0f} s: {what}")
            time.sleep(_POLL_S)

    def kubectl(self, *arguments: str, text: str = "", code: int | None = 0) -> str:
        """Run kubectl; its output, or its error if it fails. With the code None it may fail."""
        done = subprocess.run(
            [
                *(self.programs / "kubectl", f"--kubeconfig={self.kubeconfig}", "-n", NAMESPACE),
                *arguments,
            ],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        assert code is None or done.returncode == code, f"{arguments}: {done.stderr[-2000:]}"
        return done.stdout if done.returncode == 0 else done.stderr

    def apply(
        self, kind: str, name: str, *, api: str = "v1", labels: Any = None, **fields: Any
    ) -> None:
        """Create or change an object with these labels and fields, such as `spec`."""
        metadata = {"name": name, "labels": labels or {}}
        given = {"apiVersion": api, "kind": kind, "metadata": metadata, **fields}
        self.kubectl("apply", "-f", "-", text=json.dumps(given))

    def get(self, kind: str, name: str = "", selector: str = "") -> Any:
        chosen = [kind, *([name] if name else []), *(["-l", selector] if selector else [])]
        found = json.loads(self.kubectl("get", *chosen, "-o", "json"))
        return found if name else found["items"]

    def shown(self) -> str:
        """All pods, their events, and the ends of their logs."""
        names = self.kubectl("get", "pods", "-o", "name", code=None).splitlines()
        return "\n".join(
            [
                self.kubectl("get", "jobs,pods,pvc", "-o", "wide", code=None),
                self.kubectl("get", "events", "--sort-by=.lastTimestamp", code=None)[-6000:],
                *(f"{pod}:\n{self.kubectl('logs', pod, '--tail=20', code=None)}" for pod in names),
            ]
        )

    def ended(self, job: str, patience_s: float) -> str:
        """How a Job ended: `Complete` or `Failed`; it must end in this time."""

        def ends() -> list[dict[str, str]]:
            return list(self.get("job", job)["status"].get("conditions", ()))

        self.wait(lambda: bool(ends()), f"the Job {job} goes on", patience_s)
        return ends()[0]["type"]

    def folder(self, claim: str) -> Path:
        """The directory of the node that is a claim's volume."""
        return self.home / "volumes" / claim

    def volume(self, name: str, mode: str, storage: str = "1Gi", claim: str = "") -> None:
        """Make a volume, a directory of the node, for a claim or for any that fits."""
        folder = self.folder(name)
        folder.mkdir(parents=True)
        os.chown(folder, USER, USER)
        spec = {
            "accessModes": [mode],
            "storageClassName": "",
            "capacity": {"storage": storage},
            "hostPath": {"path": str(folder)},
        }
        if claim:
            spec["claimRef"] = {"namespace": NAMESPACE, "name": claim}
        self.apply("PersistentVolume", name, spec=spec)

    def claim(self, name: str) -> None:
        """Make a volume claim, and the volume for it: a directory of the node."""
        self.volume(name, "ReadWriteMany", claim=name)
        spec = {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self.apply("PersistentVolumeClaim", name, spec=spec)

    def flags(self, **options: str) -> list[str]:
        """The flags of `lab run` for a run here, with these options of the backend."""
        return ["--backend", "kubernetes", *render_flags(**options)]

    def kill(self, pod: str) -> None:
        """Kill the container of a pod, as the kernel does when it has no memory left."""
        environment = {**os.environ, **self.engine}
        chosen = ("--filter", f"name=k8s_lab_{pod}_")
        (found,) = engines.run(["docker", "ps", "-q", *chosen], environment=environment).split()
        engines.run(["docker", "kill", found], environment=environment)

    def stop(self) -> None:
        """End all pods, then all daemons in the reverse order of their start."""
        with contextlib.suppress(KubernetesError, AssertionError):
            self.check()
            self.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
            self.wait(lambda: not self.get("pods"), "pods do not end", STOP_S)
        for name in reversed([*self._daemons]):
            # Their files go with `home`. An API server would wait a minute for its watches.
            self.end(name, signal.SIGKILL)


def render_flags(**options: str) -> list[str]:
    """The flags of `lab render` for objects here, with these options of the backend."""
    given = {"flavour": "plain", "namespace": NAMESPACE, **options}
    chosen = (part for name, value in given.items() for part in ("-o", f"{name}={value}"))
    return ["--gpus", "none", *chosen]


@contextlib.contextmanager
def a_site(home: Path, programs: Path, engine: Mapping[str, str], address: str) -> Iterator[Site]:
    """Start a Kubernetes for as long as the block lasts, or `KubernetesError`."""
    site = Site(home, programs, engine, address)
    with contextlib.ExitStack() as stack:
        stack.callback(site.stop)
        _make_pause(site)
        _write_credentials(site)
        _start_control_plane(site)
        _start_kubelet(site)
        _start_names(site, stack)
        yield site


def _make_pause(site: Site) -> None:
    """Make the image of the container that holds a pod's network."""
    tar = site.home / "pause.tar"
    engines.run(["tar", "-C", site.programs, "-cf", tar, "pause"])
    load = ["docker", "import", "--change", 'ENTRYPOINT ["/pause"]', tar, PAUSE]
    engines.run(load, environment={**os.environ, **site.engine})


def _write_credentials(site: Site) -> None:
    """Write the token of the daemons and the tests, and the key of the pods' tokens."""
    tokens = site.home / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f"{site.token},tests,tests,system:masters\n")
    engines.run(["openssl", "genrsa", "-out", site.home / "accounts.key", "2048"])
    cluster = {"server": site.api.url, "certificate-authority": str(site.api.certificate)}
    context = {"cluster": "tests", "user": "tests", "namespace": NAMESPACE}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "tests", "user": {"token": site.token}}],
        "contexts": [{"name": "tests", "context": context}],
        "current-context": "tests",
    }
    site.kubeconfig.touch(mode=0o600)
    site.kubeconfig.write_text(json.dumps(config))


def _start_control_plane(site: Site) -> None:
    home, programs = site.home, site.programs
    etcd = "http://127.0.0.1:2379"
    site.start(
        "etcd",
        str(programs / "etcd"),
        f"--data-dir={home}/etcd",
        f"--listen-client-urls={etcd}",
        f"--advertise-client-urls={etcd}",
        "--listen-peer-urls=http://127.0.0.1:2380",
    )
    site.start(
        "kube-apiserver",
        str(programs / "kube-apiserver"),
        f"--etcd-servers={etcd}",
        f"--advertise-address={site.address}",
        f"--cert-dir={site.api.certificate.parent}",
        f"--token-auth-file={home}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={home}/accounts.key",
        f"--service-account-signing-key-file={home}/accounts.key",
        "--service-cluster-ip-range=10.96.0.0/16",
        # No name server knows the name of the node.
        "--kubelet-preferred-address-types=InternalIP",
    )
    site.wait(
        lambda: site.kubectl("get", "--raw", "/readyz", code=None) == "ok",
        "the API server is not ready",
        START_S,
    )
    site.start(
        "kube-controller-manager",
        str(programs / "kube-controller-manager"),
        f"--kubeconfig={site.kubeconfig}",
        "--leader-elect=false",
        f"--service-account-private-key-file={home}/accounts.key",
        f"--root-ca-file={site.api.certificate}",
    )
    site.start(
        "kube-scheduler",
        str(programs / "kube-scheduler"),
        f"--kubeconfig={site.kubeconfig}",
        "--leader-elect=false",
    )


def _start_kubelet(site: Site) -> None:
    home = site.home
    site.start(
        "kubelet",
        str(site.programs / "kubelet"),
        f"--kubeconfig={site.kubeconfig}",
        f"--hostname-override={NODE}",
        f"--node-ip={site.address}",
        f"--root-dir={home}/kubelet",
        f"--cert-dir={home}/kubelet-certificates",
        f"--volume-plugin-dir={home}/plugins",
        # The second one is of the part that measures: without it, no pod is over its limit.
        f"--docker-endpoint={site.engine['DOCKER_HOST']}",
        f"--docker={site.engine['DOCKER_HOST']}",
        f"--container-runtime-endpoint=unix://{home}/dockershim.sock",
        f"--image-service-endpoint=unix://{home}/dockershim.sock",
        f"--experimental-dockershim-root-directory={home}/dockershim",
        f"--pod-infra-container-image={PAUSE}",
        f"--cgroup-root=/{CGROUP}",
        f"--cluster-dns={site.address}",
        f"--cluster-domain={names.DOMAIN}",
        # In these namespaces, only the API server connects to it.
        "--authorization-mode=AlwaysAllow",
        "--fail-swap-on=false",
        "--make-iptables-util-chains=false",
        # Only a process with CAP_SYS_RESOURCE may have a negative one.
        "--oom-score-adj=0",
        # It must not remove the image, or end pods, because the host has a full disk.
        "--image-gc-high-threshold=100",
        "--eviction-hard=memory.available<100Mi,nodefs.available<1%,imagefs.available<1%",
    )

    def ready() -> bool:
        nodes = json.loads(site.kubectl("get", "nodes", "-o", "json"))["items"]
        states = {each["type"]: each["status"] for n in nodes for each in n["status"]["conditions"]}
        return states.get("Ready") == "True"

    site.wait(ready, "the node is not ready", START_S)
    site.kubectl("create", "namespace", NAMESPACE)
    site.wait(lambda: bool(site.get("serviceaccounts")), "no service account", START_S)


def _start_names(site: Site, stack: contextlib.ExitStack) -> None:
    """Start a name server, which the kubelet names in each pod."""
    file = site.home / "names"
    file.touch()
    server = site.start(
        "dnsmasq",
        *("dnsmasq", "--keep-in-foreground", "--user=root", "--pid-file", "--conf-file=/dev/null"),
        *("--no-resolv", "--no-hosts", f"--addn-hosts={file}", f"--local=/{names.DOMAIN}/"),
        *("--bind-interfaces", f"--listen-address={site.address}", "--except-interface=lo"),
    )

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection((site.address, 53)):
            return True
        return False

    # Before that, the signal to read its file would end it.
    site.wait(listens, "dnsmasq does not listen", START_S)
    end = threading.Event()
    stack.callback(end.set)
    arguments = (site.api, file, server.pid, end)
    threading.Thread(target=names.follow, args=arguments, daemon=True).start()


def start_custom_resources(site: Site, program: Path) -> Api:
    """Start an API server for custom resources, whose users are those of the other one."""
    home = site.home / "custom-resources"
    site.start(
        "apiextensions-apiserver",
        str(program),
        "--etcd-servers=http://127.0.0.1:2379",
        f"--secure-port={PORT + 1}",
        f"--cert-dir={home}",
        *(f"--{which}kubeconfig={site.kubeconfig}" for which in KUBECONFIGS),
        # The other API server has no objects of these kinds, and no priority levels of v1.
        f"--disable-admission-plugins={','.join(NEWER_PLUGINS)}",
        "--enable-priority-and-fairness=false",
    )
    api = Api(f"https://127.0.0.1:{PORT + 1}", home / "apiserver.crt", site.token)

    def ready() -> bool:
        try:
            return api.answer("/readyz") == (200, "ok")
        except OSError:
            return False

    site.wait(ready, "the API server for custom resources is not ready", START_S)
    return api
