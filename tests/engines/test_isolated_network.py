"""A network that the engine isolates needs no block of the host; Engine 28 or later."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.backends.compose.environment import ComposeEnvironment
from lab.backends.compose.render import DEFAULTS, render
from lab.backends.engine.client import Engine
from tests.groups.group import ENGINE_S
from tests.support.docker import docker, listening_host, place_on, reached_by_worker


@pytest.mark.engine
@pytest.mark.timeout(ENGINE_S)
def test_an_isolated_network_needs_no_block(image: str, root: Path) -> None:
    plan = place_on(root, "none", name="lab-e2e-isolated")
    file = root / "docker-compose.yml"
    file.write_text(render(plan, {**DEFAULTS, "network": "isolated"}))
    try:
        docker("compose", "--file", str(file), "up", "--detach", "--wait")
        with listening_host(image) as host:
            assert reached_by_worker(plan.name, *host) == set()
    finally:
        ComposeEnvironment(Engine(), plan.name).down()
