"""The host is blocked from tasks in containers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import pyroute2
import pytest

from lab.backends.compose import host_block
from lab.backends.compose.host_block import block_container, block_host
from lab.backends.compose.render import ISOLATED
from lab.backends.engine.client import Done, Engine
from lab.base.errors import LabError
from lab.protocol.network.host_block import MODULE, main, name_servers
from tests.support.network import in_network

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
SUBNET = "eth0\t000016AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
BY_GATEWAY = "eth0\t00000000\t010016AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
REJECTED = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"
HOST_ONLY = "*\t010016AC\t00000000\t0205\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"
OPEN = HEAD + BY_GATEWAY + SUBNET


@pytest.mark.parametrize(
    ("lines", "servers"),
    [
        ("nameserver 10.9.0.2\n", ["10.9.0.2"]),
        ("search dns.podman\nnameserver\nnameserver 10.9.0.9 # 10.9.0.2\n", []),
        ("#nameserver 10.9.0.2\nnameserver 127.0.0.11\n", []),
    ],
)
def test_only_a_named_host_is_a_name_server(lines: str, servers: list[str]) -> None:
    assert name_servers(lines, ["10.9.0.1", "10.9.0.2"]) == servers


LINK = {"index": 1, "flags": 1, "ifname": "eth0"}
NO_RIGHT = pyroute2.NetlinkError(errno.EPERM)
NO_FILTER = OSError(errno.EPROTONOSUPPORT, "Protocol not supported")


@pytest.mark.parametrize(
    ("argv", "error", "code", "message"),
    [
        ("", NO_RIGHT, 2, "usage: "),
        ("tf1", NO_RIGHT, 2, ""),
        ("--replies", NO_RIGHT, 2, "usage: "),
        ("10.9.0.2", NO_RIGHT, 1, "the kernel refused to block the host: Operation not perm"),
        ("10.9.0.2", NO_FILTER, 1, "the kernel has no packet filter: Protocol not supported"),
    ],
)
def test_errors_have_a_line_and_a_code(
    argv: str,
    error: Exception,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kernel = MagicMock()
    kernel.__enter__.return_value.get_links.return_value = [LINK]
    kernel.__enter__.return_value.get_addr.side_effect = error
    kernel.__exit__.return_value = None
    monkeypatch.setattr(pyroute2, "IPRoute", lambda: kernel)
    assert main(argv.split()) == code
    assert capsys.readouterr().err.startswith(f"error: {message}")


REACH = """
from lab.protocol.network import host_block
from lab.protocol.network.host_block import ROUTES, is_blocked
n.addr('add', index=i, address='10.9.0.4', prefixlen=24)  # another own address
n.addr('add', index=i, address='fe80::9', prefixlen=64, flags=2)  # usable at once
def reach(address, bound, port=7):
    s = socket.socket(); s.settimeout(0.5)
    if bound: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'v0')
    try: s.connect((address, port))
    except ConnectionRefusedError: return 'refused'
    except OSError as error: return type(error).__name__
    return 'reached'
def datagram(address, port=9, bound=False):
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    if bound: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'v0')
    try: return s.sendto(b'x', (address, port))
    except OSError as error: return type(error).__name__
def now():
    print(*(reach('10.9.0.2', bound) for bound in (False, True)),
        *map(datagram, ('10.9.0.255', 'ff02::1%v0')), is_blocked(open(ROUTES).read()))
def block(*words):
    p = subprocess.run([sys.executable, '-m', 'lab.protocol.network.host_block', *words],
        capture_output=True, text=True)
    print(p.returncode, p.stdout, p.stderr)
# The neighbour is the host. It ends with its first connection.
kept = socket.create_connection(('10.9.0.2', 7))
"""
OPENED = "reached reached 1 1 False"  # first: the tests could fail
BLOCKED = "OSError TimeoutError PermissionError PermissionError True"


def stripped(code: str) -> list[str]:
    return [each.strip() for each in in_network(REACH + code)]


def test_only_the_network_can_be_reached_however_a_program_tries() -> None:
    lines = stripped(
        "now(); block('10.9.0.2'); now(); block('10.9.0.2'); now()\n"
        "p, ready = fault('cut:1s'); p.wait()\n"
        "now()\n"
        "own = socket.create_server(('10.9.0.4', 9)); print(reach('127.0.0.1', False))\n"
        "socket.create_connection(('10.9.0.4', 9)); print('own address')\n"
    )
    assert lines[:5] == [OPENED, "0", BLOCKED, "0", BLOCKED]
    # A fault has taken the link down and up.
    assert not {"reached", "1", "False"} & set(lines[5].split())
    assert lines[6:] == ["refused", "own address"]
    # Another node is still reached.
    lines = stripped("block('10.9.0.1', '10.9.0.9'); now()\n")
    assert lines[1].split()[:2] == ["reached", "reached"]


SERVER = """
import threading
CLIENT = '''
import socket
try:
    s = socket.create_connection(('10.9.0.1', 9), 1)
    s.sendall(b'hi'); print(s.recv(9).decode())
except OSError as error: print(type(error).__name__)
'''
def serve(server):
    while True:
        peer, _ = server.accept()
        with peer: peer.sendall(peer.recv(9).upper())
server = socket.create_server(('10.9.0.1', 9))
threading.Thread(target=serve, args=(server,), daemon=True).start()
def host_reaches_the_server():
    p = subprocess.run(['nsenter', f'--net=/proc/{far.pid}/ns/net', sys.executable, '-c', CLIENT],
        capture_output=True, text=True)
    print(p.stdout.strip() or p.stderr)
def earlier():
    kept.settimeout(0.5)
    try: kept.sendall(b'x'); return kept.recv(1)
    except OSError as error: return type(error).__name__
def others():
    print(*(datagram('10.9.0.2', bound=bound) for bound in (False, True)), earlier())
"""


def test_a_server_answers_the_host_but_opens_no_connection_to_it() -> None:
    lines = stripped(
        SERVER + "host_reaches_the_server(); now(); others()\n"
        "block('--replies', '10.9.0.2'); host_reaches_the_server(); now(); others()\n"
        "block('--replies', '10.9.0.2'); host_reaches_the_server()\n"
    )
    assert lines[:5] == ["HI", OPENED, "1 1 b'x'", "0", "HI"]
    assert lines[5] == "TimeoutError TimeoutError PermissionError PermissionError True"
    assert lines[6:] == ["PermissionError PermissionError TimeoutError", "0", "HI"]


@pytest.mark.parametrize("options", [[], ["--replies"]])
def test_a_name_server_on_the_host_can_be_asked_and_nothing_else(
    tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "resolv.conf").write_text("search x\nnameserver 10.9.0.2\n")
    lines = stripped(
        f"host_block.NAME_SERVERS = host_block.Path({str(tmp_path / 'resolv.conf')!r})\n"
        f"print(host_block.main([*{options}, '10.9.0.2']))\n"
        "for port in (53, 7): print(datagram('10.9.0.2', port), reach('10.9.0.2', False, port))\n"
        "now()\n"
    )
    # The neighbour answers: it has no such server.
    assert lines[:3] == ["0", "1 refused", "PermissionError TimeoutError"]
    assert lines[3] == "TimeoutError TimeoutError PermissionError PermissionError True"


def container(node: str, routes: str = OPEN, status: str = "running", **labels: str) -> Mock:
    own = {"lab.node": node, **labels}
    image = {"Image": "sha256:beef"}
    return Mock(id=f"id-{node}", labels=own, status=status, attrs=image, routes=routes)


class FakeEngine(Engine):
    """An engine of one project; each short-lived container ends with this code."""

    def __init__(
        self, network: dict[str, Any], *containers: Mock, version: str = "20.10.24", code: int = 0
    ) -> None:
        super().__init__()
        self.by_id = {each.id: each for each in containers}
        self.added = Mock(wait=Mock(return_value={"StatusCode": code}))
        self.added.logs.return_value = b"error: the kernel has no packet filter: x\n"
        self.created: list[tuple[Any, ...]] = []
        client = Mock(version=lambda: {"Version": version})
        client.api.networks.return_value = [network]
        client.containers.get = self.by_id.__getitem__
        self._local.client = client

    def containers(self, *labels: str) -> Any:
        return list(self.by_id.values())

    def execute(self, doing: str, container_id: str, *_: object, **__: object) -> Done:
        return Done(0, self.by_id[container_id].routes.encode(), b"")

    def create(self, project: str, image: str, command: Any, **options: Any) -> Any:
        self.created.append((project, image, *command, options))
        return self.added

    def for_each(
        self, doing: str, containers: Any, action: Callable[[Any], Any], **_: object
    ) -> Any:
        """In this thread: each thread has its own client, and the fake is that of this one."""
        return [action(each) for each in containers]


def network(**options: str) -> dict[str, Any]:
    config = [{"Subnet": "172.22.0.0/16", "Gateway": "172.22.0.1"}, {"Subnet": "fd00::/64"}]
    return {"Options": options, "IPAM": {"Config": config}}


def blocked(node: str, *command: str, labels: Any = (), project: str = "mnist") -> tuple[Any, ...]:
    rights = {"user": "0:0", "cap_add": ["NET_ADMIN"], "labels": dict(labels)}
    options = {"network_mode": f"container:id-{node}", **rights}
    return (project, "sha256:beef", "python", "-m", MODULE, *command, options)


def test_only_open_nodes_get_a_container_with_one_right(notices: list[str]) -> None:
    engine = FakeEngine(
        network(),
        container("tf1", HEAD + REJECTED + SUBNET + HOST_ONLY),
        container("tf2"),
        container("tf3", **{"lab.task": "worker-0"}),
        container("tf4", **{"lab.reader": "mnist"}),
        container("tf5", status="exited"),
    )
    block_host(engine, "mnist")
    assert engine.created == [blocked("tf2", "172.22.0.1")]
    assert [call[0] for call in engine.added.method_calls] == ["start", "wait", "remove"]
    assert notices == []


@pytest.mark.parametrize(
    ("version", "blocks"), [("28.0.0", 0), ("29.1", 0), ("27.5.1", 1), ("20.10.24", 1), ("dev", 1)]
)
def test_an_isolated_network_needs_no_container_if_the_engine_knows_it(
    version: str, blocks: int, notices: list[str]
) -> None:
    isolated = network(**dict.fromkeys(ISOLATED, "isolated"))
    engine = FakeEngine(isolated, container("tf1"), version=version)
    block_host(engine, "mnist")
    assert (len(engine.created), notices) == (blocks, [])


def test_a_bridge_without_a_configured_gateway_has_the_first_address() -> None:
    unnamed = network()
    del unnamed["IPAM"]["Config"][0]["Gateway"]
    assert list(host_block.host_addresses(unnamed)) == ["172.22.0.1"]
    assert list(host_block.host_addresses({"IPAM": {"Config": None}})) == []


@pytest.mark.parametrize("routes", [OPEN, HEAD + REJECTED + SUBNET])
def test_a_container_that_may_answer_the_host_is_blocked_once(routes: str) -> None:
    seat = container("ada", routes)
    engine, labels = FakeEngine(network(), seat), {"lab.class": "w"}
    block_container(engine, "class", ["10.89.0.17"], seat, "ada", replies=True, labels=labels)
    command = ("--replies", "10.89.0.17")
    once = [blocked("ada", *command, labels=labels, project="class")]
    assert engine.created == (once if routes == OPEN else [])


def test_a_refusal_is_an_error_for_a_container_and_a_warning_for_nodes(notices: list[str]) -> None:
    node = container("tf1")
    engine = FakeEngine(network(), node, code=1)
    with pytest.raises(LabError) as caught:
        block_container(engine, "class", ["10.89.0.17"], node, "ada")
    assert str(caught.value) == "ada: the kernel has no packet filter: x"
    block_host(engine, "mnist")
    why = "tasks can reach this host: node tf1: the kernel has no packet filter: x"
    assert notices == [f"warning: {why}"]
    assert engine.added.remove.call_count == 2
