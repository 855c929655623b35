"""Fixtures: the engine, the image and the Kubernetes of the tests, all in these namespaces."""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Final

import pytest

from tests.kubernetes.site import Site, a_site
from tests.support import engine as engines

# Without CAP_SYS_RESOURCE, no process may have a negative value, and the kubelet sets some.
RUNTIME: Final = """\
#!/bin/sh
previous=
for argument in "$@"; do
    if [ "$previous" = --bundle ]; then
        sed -i 's/"oomScoreAdj":-[0-9]*/"oomScoreAdj":0/' "$argument/config.json"
    fi
    previous=$argument
done
exec runc "$@"
"""


LEFT: Final = "jobs,pods,services,networkpolicies,persistentvolumeclaims"
"""The kinds of objects of which a backend must leave none."""


@pytest.fixture(scope="session")
def places() -> tuple[Path, Path, Path]:
    """The programs, the directory of this run, and the engine's images."""
    if "LAB_TEST_KUBERNETES" not in os.environ:
        pytest.exit("start these tests with `make test-kubernetes`", 1)
    programs, home, data = map(Path, os.environ["LAB_TEST_KUBERNETES"].split(":"))
    return programs, home, data


@pytest.fixture(scope="session")
def engine(
    places: tuple[Path, Path, Path],
    variables: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[engines.Engine]:
    """The engine that the kubelet uses. Its images stay in the user's cache."""
    _, home, data = places
    runtime = home / "runc"
    runtime.write_text(RUNTIME)
    runtime.chmod(0o755)
    configuration = {
        "data-root": str(data),
        "runtimes": {"lab": {"path": str(runtime)}},
        "default-runtime": "lab",
    }
    with engines.compose_plugin() as client:
        environment = {**client, "DOCKER_HOST": f"unix://{home}/docker.sock"}
        daemon = engines.start(home, environment, configuration=configuration)
        for name in ("DOCKER_HOST", "DOCKER_CONFIG", "PATH"):
            if name in environment:
                variables.setenv(name, environment[name])
        variables.setenv("LAB_STATE", str(tmp_path_factory.mktemp("state")))
        yield engines.Engine(environment, private=True)
        for command in ("container prune --force", "image prune --force"):
            engines.run(["docker", *command.split()], environment=environment)
        engines.stop(daemon)


@pytest.fixture(scope="session")
def site(places: tuple[Path, Path, Path], engine: engines.Engine) -> Iterator[Site]:
    programs, home, _ = places
    # The engine leaves out the gateway of a bridge that it has just made: the first address.
    subnet = "{{(index .IPAM.Config 0).Subnet}}"
    command = ["docker", "network", "inspect", "bridge", "--format", subnet]
    network = ip_network(engines.run(command, environment=engine.environment).strip())
    with a_site(home, programs, engine.environment, str(next(network.hosts()))) as found:
        yield found


@pytest.fixture
def claim(site: Site, request: pytest.FixtureRequest) -> str:
    """A volume claim of the test's own; it goes with the namespace."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)[:50].strip("-")
    site.claim(name)
    return name


@pytest.fixture
def own_project(tmp_path: Path) -> Path:
    (tmp_path / "cluster.yaml").write_bytes((engines.ROOT / "clusters/laptop.yaml").read_bytes())
    (tmp_path / "scripts").symlink_to(engines.ROOT / "scripts")
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def project(site: Site, claim: str, own_project: Path) -> Iterator[Path]:
    """A project; afterwards, the cluster has none of its objects, and the volume is empty."""
    yield own_project
    assert site.get(LEFT, selector="lab.project") == []
    assert [*site.folder(claim).iterdir()] == []
    assert [*(own_project / "state/kubernetes").glob("*/")] == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the cluster to the report of a failure."""
    report = yield
    site = getattr(item, "funcargs", {}).get("site")
    if report.failed and site is not None:
        report.sections.append(("the cluster", site.shown()))
    return report
