"""A namespace of a Kubernetes cluster: objects, logs and calls in pods, by the official client."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.backends.run_volume import raise_for_exit_code
from lab.base.errors import LabError
from lab.base.text import short

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

Object = dict[str, Any]

PATHS: Final[Mapping[str, str]] = {
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Service": "/api/v1/namespaces/{}/services",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Event": "/api/v1/namespaces/{}/events",
}

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_WATCH_S: Final = 60
_TIMEOUT_S: Final = 30
"""Seconds without data from the server after which a call fails."""

_STATUS: Final = 3
"""The channel with the end of a call in a pod."""

_MAX_PIECE: Final = 1 << 16
_CONFLICT, _MISSING, _ERROR = 409, 404, 400


class Away(LabError):  # noqa: N818  (a state)
    """The server does not answer, or a call broke off."""


class ApiError(LabError):
    """The server refused a request.

    Attributes:
        status: The status of HTTP.
    """

    def __init__(self, what: str, hint: str, status: int) -> None:
        super().__init__(what, hint)
        self.status = status

    @property
    def is_conflict(self) -> bool:
        """Whether there is such an object already."""
        return self.status == _CONFLICT


def kubeconfig() -> str:
    """Return the files that configure access to clusters, separated by colons."""
    return os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())


def is_configured() -> bool:
    """Whether this process has access to a cluster: by a kubeconfig, or because it is in a pod."""
    return _has_kubeconfig() or _SERVICE_ACCOUNT.is_file()


def _has_kubeconfig() -> bool:
    return any(Path(file).is_file() for file in kubeconfig().split(os.pathsep) if file)


class Api:
    """A namespace of a cluster.

    Attributes:
        context: The context of the kubeconfig; "" in a pod.
        namespace: The namespace.
    """

    def __init__(self, context: str = "", namespace: str = "") -> None:
        """Use the current context, and its namespace, where none is named.

        Raises:
            LabError: The kubeconfig cannot be used.
        """
        from kubernetes import config  # noqa: PLC0415  (takes a second)
        from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415

        settings = Configuration()
        settings.retries = False
        with _errors("reading the kubeconfig"):
            if _has_kubeconfig():
                contexts, current = config.list_kube_config_contexts(kubeconfig())
                self.context = context or str(current["name"])
                config.load_kube_config(
                    kubeconfig(), context=self.context, client_configuration=settings
                )
                known = {entry["name"]: entry["context"] for entry in contexts}
                default = known.get(self.context, {}).get("namespace", "default")
            else:
                self.context = ""
                config.load_incluster_config(client_configuration=settings)
                default = _SERVICE_ACCOUNT.read_text(encoding="ascii").strip()
        self.namespace = namespace or default
        self._client: ApiClient = ApiClient(settings)

    def version(self) -> str:
        """Return the version of the server.

        Raises:
            LabError: The server does not answer.
        """
        return str(self._json("reading the version", "GET", "/version")["gitVersion"])

    def create(self, manifest: Object) -> None:
        """Create an object.

        Raises:
            ApiError: The server refuses it.
            LabError: The server does not answer.
        """
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self._json(f"creating {kind} {name}", "POST", self._path(kind), body=manifest)

    def list(
        self, kind: str, labels: Mapping[str, str], query: Sequence[tuple[str, str]] = ()
    ) -> list[Object]:
        """List the objects of a kind with these labels; none if the cluster has no such kind.

        Raises:
            LabError: The server does not answer.
        """
        query = [("labelSelector", _selector(labels)), *query]
        try:
            answer = self._json(f"listing {kind}s", "GET", self._path(kind), query)
        except ApiError as error:
            if error.status == _MISSING:  # there is no such kind
                return []
            raise
        return [{"kind": kind, **item} for item in answer["items"]]

    def watch_pods(self, labels: Mapping[str, str]) -> Iterator[Object]:
        """Yield the pods with these labels, and each again when it changes; end after a minute.

        Raises:
            LabError: The server refuses, or does not answer.
        """
        # `Watch.stream` needs `CoreV1Api`, whose import takes seconds in which no pod is watched.
        from kubernetes.watch.watch import iter_resp_lines  # noqa: PLC0415

        doing, limit_s = "watching the pods", _WATCH_S + _TIMEOUT_S
        query = [("labelSelector", _selector(labels)), ("watch", "true")]
        query.append(("timeoutSeconds", str(_WATCH_S)))
        path = self._path("Pod")
        response = self._request(doing, "GET", path, query, timeout_s=limit_s).response
        try:
            with _errors(doing):
                for line in iter_resp_lines(response):
                    yield json.loads(line)["object"]
        finally:
            response.close()

    def node(self, name: str) -> Object:
        """Return a node, which does not belong to the namespace.

        Raises:
            LabError: The server refuses, or does not answer.
        """
        return self._json(f"reading node {name}", "GET", f"/api/v1/nodes/{name}")

    def delete(self, resource: Object) -> None:
        """Delete an object and what belongs to it, unless it is gone or replaced by another one.

        Raises:
            LabError: The server refuses, or does not answer.
        """
        kind, name = resource["kind"], resource["metadata"]["name"]
        body = {
            "propagationPolicy": "Background",
            "preconditions": {"uid": resource["metadata"]["uid"]},
        }
        path = f"{self._path(kind)}/{name}"
        try:
            self._json(f"deleting {kind} {name}", "DELETE", path, body=body)
        except ApiError as error:
            if error.status not in {_MISSING, _CONFLICT}:
                raise

    def logs(
        self, pod: str, *, follow: bool, tail: int | None, since: float | None
    ) -> Iterator[bytes]:
        """Yield pieces of a pod's output.

        Args:
            pod: The pod.
            follow: Continue with new output.
            tail: Begin with this many lines; None: with all.
            since: Only what was written since this time, in seconds since the epoch.

        Raises:
            LabError: The pod has no output, or the server does not answer.
        """
        at = since and datetime.fromtimestamp(since, UTC).isoformat()
        options = {"follow": follow and "true", "tailLines": tail, "sinceTime": at}
        query = [(key, str(value)) for key, value in options.items() if value not in {None, False}]
        path, timeout_s = f"{self._path('Pod')}/{pod}/log", None if follow else _TIMEOUT_S
        doing = f"reading the output of {pod}"
        response = self._request(doing, "GET", path, query, timeout_s=timeout_s).response
        try:
            with _errors(doing):
                yield from response.stream()
        finally:
            response.release_conn() if not follow else response.close()

    def call(
        self,
        pod: str,
        command: Sequence[str],
        stdin: bytes = b"",
        *,
        within_s: float = _TIMEOUT_S,
    ) -> Generator[bytes, None, None]:
        """Run a command in a pod. Its standard input closes when the caller stops reading.

        Args:
            pod: The pod.
            command: The command.
            stdin: Its standard input, which stays open.
            within_s: Seconds without output after which the call fails.

        Yields:
            Pieces of its standard output.

        Raises:
            LabError: The call broke off, or the command failed; see `raise_for_exit_code`.
        """
        doing = f"calling {' '.join(command[:4])} in {pod}"
        printed = b""
        with _errors(doing):
            client = self._stream(pod, command)
            try:
                for start in range(0, len(stdin), _MAX_PIECE):
                    client.write_stdin(stdin[start : start + _MAX_PIECE])
                heard = time.monotonic()
                while client.is_open():
                    data = client.read_stdout(timeout=within_s)
                    errors = client.read_stderr(timeout=0)
                    printed = (printed + errors)[-4096:]
                    if data:
                        yield data
                    if data or errors:
                        heard = time.monotonic()
                    elif client.is_open() and time.monotonic() - heard >= within_s:
                        raise TimeoutError(f"no output for {within_s:g} s")
            finally:
                client.close(timeout=1)
            _raise_for_status(doing, json.loads(client.read_channel(_STATUS)), printed)

    def _stream(self, pod: str, command: Sequence[str]) -> Any:  # noqa: ANN401  (it has no types)
        """Start a command in a pod; return the client's stream."""
        from kubernetes.stream.ws_client import websocket_call  # noqa: PLC0415

        query = [("command", argument) for argument in command]
        query += [(channel, "true") for channel in ("stdin", "stdout", "stderr")]
        path = f"{self._path('Pod')}/{pod}/exec"
        _, url, headers, *_ = self._client.param_serialize(
            "GET", path, query_params=query, auth_settings=["BearerToken"]
        )
        settings = self._client.configuration
        client = websocket_call(
            settings,
            "GET",
            url,
            headers=headers,
            _preload_content=False,
            binary=True,
            capture_all=False,
        )
        # One frame at a time: otherwise the client collects all output that is under way in memory.
        client._frames_immediately_available = lambda: False
        return client

    def _path(self, kind: str) -> str:
        return PATHS[kind].format(self.namespace)

    def _json(
        self,
        doing: str,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: Object | None = None,
    ) -> Object:
        response = self._request(doing, method, path, query, body)
        with _errors(doing):
            content: Object = json.loads(response.read())
        return content

    def _request(
        self,
        doing: str,
        method: str,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: Object | None = None,
        *,
        timeout_s: float | None = _TIMEOUT_S,
    ) -> Any:  # noqa: ANN401  (the client has no types)
        """Send a request; return the response, whose content is not read yet."""
        with _errors(doing):
            request = self._client.param_serialize(
                method,
                path,
                query_params=[*query],
                header_params={"Accept": "application/json", "Content-Type": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
            limits = (_TIMEOUT_S, timeout_s)
            response = self._client.call_api(*request, _request_timeout=limits)
            if response.status >= _ERROR:
                _refuse(doing, response.status, response.read())
        return response


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _refuse(doing: str, status: int, content: bytes) -> None:
    """Raise the error for an answer of the server."""
    try:
        message = str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        message = content.decode("utf-8", "replace") or f"status {status}"
    hint = {
        401: "renew the credentials of your kubeconfig",
        403: "ask for these rights in the namespace, or use -o namespace=NAME",
        404: "see what `kubectl api-resources` lists; without JobSet, use -o flavour=plain",
        409: "see `kubectl get all --show-labels`; set another `name:` in the config",
    }.get(status, "see `kubectl get events`")
    raise ApiError(f"{doing}: {short(message, 300)}", hint, status)


def _raise_for_status(doing: str, status: Object, printed: bytes) -> None:
    """Raise the error of a command that failed.

    Raises:
        LabError: It failed.
    """
    if status.get("status") == "Success":
        return
    causes = status.get("details", {}).get("causes", [])
    codes = [cause["message"] for cause in causes if cause.get("reason") == "ExitCode"]
    if not codes:
        raise LabError(f"{doing}: {status.get('message', status)}", "see `lab ps`")
    raise_for_exit_code(doing, int(codes[0]), printed)


@contextmanager
def _errors(doing: str) -> Iterator[None]:
    """Convert the client's errors into errors for the user.

    Raises:
        Away: The server does not answer, or a call broke off.
        LabError: The kubeconfig cannot be used.
    """
    from kubernetes.client import ApiException  # noqa: PLC0415
    from kubernetes.config import ConfigException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415
    from websocket import WebSocketException  # noqa: PLC0415

    try:
        yield
    except ConfigException as error:
        raise LabError(f"{doing}: {error}", "see `kubectl config get-contexts`") from error
    except (ApiException, HTTPError, WebSocketException, OSError, ValueError) as error:
        raise Away(
            f"{doing}: the API server does not answer: {error}",
            "check that `kubectl get pods` works",
        ) from error
