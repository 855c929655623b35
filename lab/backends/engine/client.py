"""The Docker engine through docker-py: one client per thread, and readable errors."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from lab.backends.engine.containers import COMPOSE_PROJECT, PROJECT, TRANSIENT
from lab.backends.engine.error_hints import explain, is_podman
from lab.backends.run_volume import NotFound
from lab.base.errors import LabError

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import CancellableStream

TIMEOUT_S: Final = 60
"""Seconds without data from the engine after which a call fails."""

LOG_LIMIT: Final[dict[str, Any]] = {
    "type": "json-file",
    "config": {"max-size": "10m", "max-file": "1"},
}
"""The limit of a container's log, which is on the host's disk."""

AT_ONCE: Final = 16
"""The number of containers that are handled at the same time."""

T = TypeVar("T")


class Done(NamedTuple):
    """How a command in a container has ended: its exit code, and what it has printed."""

    code: int | None
    stdout: bytes
    stderr: bytes


class Engine:
    """The engine that the environment variables or docker's context name.

    docker-py is imported for the first client. Threads never share a client.
    """

    def __init__(self, timeout_s: int = TIMEOUT_S) -> None:
        """Set the seconds without data from the engine after which a call fails."""
        self._local = threading.local()
        self._timeout_s = timeout_s

    def client(self) -> DockerClient:
        """Return this thread's client.

        Raises:
            LabError: No engine answers, or the user has no permission.
        """
        client: DockerClient | None = getattr(self._local, "client", None)
        if client is None:
            import docker  # noqa: PLC0415  (takes 0.2 s)

            with engine_errors("reaching the engine"):
                client = docker.from_env(timeout=self._timeout_s)
            self._local.client = client
        return client

    def version(self) -> str:
        """Return the engine's version.

        Raises:
            LabError: No engine answers, or the user has no permission.
        """
        with engine_errors("reaching the engine"):
            return str(self.client().version()["Version"])

    def major(self) -> int:
        """Return the first number of the engine's version; 0 if it has none.

        Raises:
            LabError: No engine answers, or the user has no permission.
        """
        number = self.version().partition(".")[0]
        return int(number) if number.isdecimal() else 0

    def is_podman(self) -> bool:
        """Whether it is Podman.

        Raises:
            LabError: No engine answers, or the user has no permission.
        """
        with engine_errors("reaching the engine"):
            return is_podman(self.client().version())

    def is_local(self) -> bool:
        """Whether it runs on this host, by the host name that it reports.

        Raises:
            LabError: No engine answers, or the user has no permission.
        """
        with engine_errors("reading the engine's host name"):
            return str(self.client().info().get("Name", "")) == platform.node()

    def id(self) -> str:
        """Return the engine's unique id.

        Podman reports another one each time; there, the host and its directory identify it.

        Raises:
            LabError: No engine answers, or the user has no permission.
        """
        with engine_errors("reading the engine's id"):
            info = self.client().info()
        if self.is_podman():
            return f"podman:{info.get('Name', '')}:{info.get('DockerRootDir', '')}"
        return str(info.get("ID", ""))

    def containers(self, *labels: str) -> list[Container]:
        """List containers with all these labels, including stopped ones."""
        with engine_errors("listing containers"):
            return list(
                self.client().containers.list(
                    all=True, filters={"label": list(labels)}, ignore_removed=True
                )
            )

    def create(
        self,
        project: str,
        image: str,
        command: Sequence[str],
        *,
        labels: Mapping[str, str] = MappingProxyType({}),
        **options: Any,  # noqa: ANN401  (docker-py's own)
    ) -> Container:
        """Create a short-lived container that is not part of the project's environment.

        It has no capabilities and a read-only root, unless the options add more. The image has
        labels of the project for which compose built it. Without the empty label,
        `docker compose up` would show this container as one of that project.
        """
        from docker.types import LogConfig  # noqa: PLC0415  (takes 0.2 s)

        return self.client().containers.create(
            image,
            list(command),
            labels={COMPOSE_PROJECT: "", PROJECT: project, TRANSIENT: project, **labels},
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=64,
            init=True,
            log_config=LogConfig(**LOG_LIMIT),
            **options,
        )

    def execute(
        self,
        doing: str,
        container_id: str,
        command: Sequence[str],
        *,
        within_s: float,
        max_bytes: int,
        **options: Any,  # noqa: ANN401  (docker-py's own)
    ) -> Done:
        """Run an untrusted command in a container, with limits on its time and its output.

        Args:
            doing: The action, for messages.
            container_id: A container that runs.
            command: The command. It may go on in the container after an error.
            within_s: Its time limit in seconds.
            max_bytes: The limit of its output.
            **options: More options of the exec.

        Raises:
            LabError: It does not end in time, or prints too much; or the engine refuses.
        """
        is_late = threading.Event()
        with engine_errors(doing):
            api = self.client().api
            exec_id = api.exec_create(container_id, list(command), **options)["Id"]
            output = api.exec_start(exec_id, stream=True, demux=True)
        timer = threading.Timer(within_s, _end, (output, is_late))
        timer.daemon = True
        timer.start()
        stdout = stderr = b""
        try:
            with engine_errors(doing):
                for out, error in output:
                    stdout, stderr = stdout + (out or b""), stderr + (error or b"")
                    if len(stdout) + len(stderr) > max_bytes:
                        raise LabError(f"{doing}: it printed more than {max_bytes} bytes")
                    if is_late.is_set():
                        break
        finally:
            timer.cancel()
            _end(output)
        if is_late.is_set():
            raise LabError(f"{doing}: it did not end within {within_s:g} s")
        with engine_errors(doing):
            return Done(api.exec_inspect(exec_id)["ExitCode"], stdout, stderr)

    def for_each(
        self, doing: str, containers: Sequence[Container], action: Callable[[Container], T]
    ) -> list[T]:
        """Run an action on several containers at once, in threads.

        Returns:
            The actions' results, without those of containers that no longer exist.

        Raises:
            LabError: The engine refused one action; the others were done.
        """

        def apply(container: Container) -> list[T]:
            try:
                with engine_errors(doing):
                    return [action(self.client().containers.get(str(container.id)))]
            except NotFound:
                return []

        if not containers:
            return []
        with ThreadPoolExecutor(max_workers=min(AT_ONCE, len(containers))) as pool:
            futures = [pool.submit(apply, container) for container in containers]
        return [result for future in futures for result in future.result()]


def _end(output: CancellableStream[Any], is_late: threading.Event | None = None) -> None:
    """Stop reading an output, even while another thread waits for a piece of it."""
    if is_late is not None:
        is_late.set()
    # It has ended already, or it comes through SSH, where docker-py cannot stop it.
    with suppress(OSError, LabError), engine_errors("closing an output"):
        output.close()


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Convert exceptions of docker-py, requests and sockets into errors for the user.

    Args:
        doing: The action, for the message: `reading the output of tf2`.

    Raises:
        NotFound: The object does not exist any more.
        LabError: The engine refused, or does not answer.
    """
    import docker.errors  # noqa: PLC0415
    import requests.exceptions  # noqa: PLC0415
    import urllib3.exceptions  # noqa: PLC0415

    try:
        yield
    except docker.errors.NotFound as error:
        raise NotFound(f"{doing}: {_message(error)}", "see `lab ps`") from error
    except docker.errors.APIError as error:
        raise explain(doing, [_message(error)]) from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        ConnectionError,
        TimeoutError,
    ) as error:
        raise _unreachable(doing, error) from error


def _message(error: Any) -> str:  # noqa: ANN401  (docker-py has no types)
    return str(error.explanation or error)


def _unreachable(doing: str, error: Exception) -> LabError:
    """Why the engine does not answer; docker-py wraps the cause in several exceptions."""
    if "permission denied" in str(error).lower():
        return explain(doing, ["permission denied while trying to connect to the docker daemon"])
    if "timed out" in str(error).lower():
        return LabError(f"{doing}: the Docker engine does not answer", "see its log, or restart it")
    return explain(doing, ["cannot connect to the docker daemon"])
