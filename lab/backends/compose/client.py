"""The Docker engine through docker-py: one client per thread, and errors in the user's words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from lab.backends.compose.containers import PROJECT, TRANSIENT
from lab.backends.compose.error_hints import explain
from lab.errors import LabError
from lab.task.text import short

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

TIMEOUT_S: Final = 60
"""Seconds without a word from the engine after which a call is given up."""

AT_ONCE: Final = 16
"""Containers that are asked something at the same time."""

T = TypeVar("T")


class NotFound(LabError):  # noqa: N818  (a state, as in the engine's own words)
    """What was asked for is no longer there."""


class Engine:
    """The engine that the environment or the CLI's context names.

    docker-py is imported when the first client is made, and never shares one between threads.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def client(self) -> DockerClient:
        """This thread's client.

        Raises:
            LabError: No engine answers, or it may not be asked.
        """
        client: DockerClient | None = getattr(self._local, "client", None)
        if client is None:
            import docker  # noqa: PLC0415  (0.2 s that only this backend pays)

            with engine_errors("reaching the engine"):
                client = docker.from_env(timeout=TIMEOUT_S)
            self._local.client = client
        return client

    def version(self) -> str:
        """The engine's version.

        Raises:
            LabError: No engine answers, or it may not be asked.
        """
        with engine_errors("reaching the engine"):
            return str(self.client().version()["Version"])

    def id(self) -> str:
        """What tells this engine apart from others.

        Raises:
            LabError: No engine answers, or it may not be asked.
        """
        with engine_errors("asking the engine for its id"):
            return str(self.client().info().get("ID", ""))

    def containers(self, *labels: str) -> list[Container]:
        """Containers with all these labels, also those that have stopped."""
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
        """Create a short-lived container that is no part of the project's environment.

        It has no capabilities and a read-only root, unless the options give it more.
        """
        return self.client().containers.create(
            image,
            list(command),
            labels={PROJECT: project, TRANSIENT: project, **labels},
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=64,
            init=True,
            **options,
        )

    def for_each(
        self, doing: str, containers: Sequence[Container], action: Callable[[Container], T]
    ) -> list[T]:
        """Do the same to several containers at once, each thread with a client of its own.

        Returns:
            The actions' results; a container that has gone meanwhile has none.

        Raises:
            LabError: The engine refused one; the others have been done all the same.
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


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Turn what docker-py, requests and the socket raise into errors for the user.

    Raises:
        Gone: What was asked for is no longer there.
        LabError: The engine refused, or does not answer.
    """
    import docker.errors  # noqa: PLC0415
    import requests.exceptions  # noqa: PLC0415
    import urllib3.exceptions  # noqa: PLC0415

    try:
        yield
    except docker.errors.NotFound as error:
        raise NotFound(f"{doing}: {short(_arguments(error))}", "see `lab ls`") from error
    except docker.errors.APIError as error:
        raise explain(doing, [_arguments(error)]) from error
    except (
        docker.errors.DockerException,
        requests.exceptions.RequestException,
        urllib3.exceptions.HTTPError,
        ConnectionError,
        TimeoutError,
    ) as error:
        raise _unreachable(doing, error) from error


def _arguments(error: Any) -> str:  # noqa: ANN401  (docker-py has no types)
    return str(error.explanation or error)


def _unreachable(doing: str, error: Exception) -> LabError:
    """Why the engine does not answer; the cause lies at the bottom of a chain of wrappers."""
    if "permission denied" in str(error).lower():
        return explain(doing, ["permission denied while trying to connect to the docker daemon"])
    if "timed out" in str(error).lower():
        return LabError(f"{doing}: the Docker engine does not answer", "see its log, or restart it")
    return explain(doing, ["cannot connect to the docker daemon"])
