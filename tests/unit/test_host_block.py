"""The host is blocked from tasks in containers."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyroute2
import pytest

from lab.backends.compose import host_block
from lab.backends.compose.client import Engine
from lab.backends.compose.host_block import block_container, block_host
from lab.errors import LabError
from lab.render.compose import ISOLATED
from lab.task.probes.host_block import MODULE, is_blocked, main, name_servers
from tests.unit.test_netfault import in_network

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
SUBNET = "eth0\t000016AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n"
BY_GATEWAY = "eth0\t00000000\t010016AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
REJECTED = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n"
HOST_ONLY = "*\t010016AC\t00000000\t0205\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"


# ---- In the node's network


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (HEAD, False),
        (HEAD + SUBNET, False),
        (HEAD + BY_GATEWAY + SUBNET, False),
        (HEAD + SUBNET + HOST_ONLY, False),  # the block was not completed
        (HEAD + REJECTED + SUBNET + HOST_ONLY, True),
        ("", False),
        ("what\never\n", False),
    ],
)
def test_whether_a_node_is_open_can_be_read(routes: str, expected: bool) -> None:
    assert is_blocked(routes) is expected


@pytest.mark.parametrize("argv", [[], ["tf1"], ["fe80::1"], ["10.9.0.2", "x"]])
def test_used_wrongly(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


class Kernel:
    """A kernel that refuses with this error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def get_links(self) -> list[dict[str, Any]]:
        return [{"index": 1, "flags": 1, "ifname": "eth0"}]

    def get_addr(self, **_: object) -> list[Any]:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            pyroute2.NetlinkError(errno.EPERM),
            "error: the kernel refused to block the host: Operation not permitted\n",
        ),
        (
            OSError(errno.EPROTONOSUPPORT, "Protocol not supported"),
            "error: the kernel has no packet filter: Protocol not supported\n",
        ),
    ],
)
def test_a_kernel_that_refuses(
    error: Exception,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pyroute2, "IPRoute", lambda: Kernel(error))
    assert main(["10.9.0.2"]) == 1
    assert capsys.readouterr().err == message


REACH = """
from lab.task.probes.host_block import ROUTES, is_blocked
n.addr('add', index=i, address='10.9.0.4', prefixlen=24)  # another own address
n.addr('add', index=i, address='fe80::9', prefixlen=64, flags=2)  # usable at once
def reach(address, bound):
    s = socket.socket(); s.settimeout(0.5)
    if bound: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'v0')
    try: s.connect((address, 7))
    except ConnectionRefusedError: return 'refused'
    except OSError as error: return type(error).__name__
    return 'reached'
def to_all():
    for family, address in ((socket.AF_INET, '10.9.0.255'), (socket.AF_INET6, 'ff02::1%v0')):
        s = socket.socket(family, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        try: yield s.sendto(b'x', (address, 9))
        except OSError as error: yield type(error).__name__
def now():
    print(*(reach('10.9.0.2', bound) for bound in (False, True)), *to_all(),
        is_blocked(open(ROUTES).read()))
def block():
    p = subprocess.run([sys.executable, '-m', 'lab.task.probes.host_block', '10.9.0.2'],
        capture_output=True, text=True)
    print(p.returncode, p.stdout, p.stderr)
# The neighbour is the host. It ends with its first connection.
kept = socket.create_connection(('10.9.0.2', 7))
"""


def test_only_the_network_can_be_reached_however_a_program_tries() -> None:
    lines = in_network(
        REACH + "now(); block(); now(); block(); now()\n"
        "p, ready = fault('cut:1s'); p.wait()\n"
        "now()\n"
        "own = socket.create_server(('10.9.0.4', 9)); print(reach('127.0.0.1', False))\n"
        "socket.create_connection(('10.9.0.4', 9)); print('own address')\n"
    )
    blocked = "OSError TimeoutError PermissionError PermissionError True"
    # Open first: the test could fail.
    assert lines[0] == "reached reached 1 1 False"
    assert [each.strip() for each in lines[1:5]] == ["0", blocked, "0", blocked]
    # A fault has taken the link down and up.
    assert not {"reached", "1", "False"} & set(lines[5].split())
    assert lines[6:] == ["refused", "own address"]


def test_another_node_is_still_reached() -> None:
    lines = in_network(
        REACH.replace("'10.9.0.2'],", "'10.9.0.1', '10.9.0.9'],") + "block(); now()\n"
    )
    assert lines[1].split()[:2] == ["reached", "reached"]


CLIENT = """
import socket
try:
    s = socket.create_connection(('10.9.0.1', 9), 1)
    s.sendall(b'hi'); print(s.recv(9).decode())
except OSError as error: print(type(error).__name__)
"""
SERVER = (
    f"CLIENT = {CLIENT!r}"
    + """
import threading
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
def datagram(bound):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if bound: s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'v0')
    try: return s.sendto(b'x', ('10.9.0.2', 9))
    except OSError as error: return type(error).__name__
def earlier():
    kept.settimeout(0.5)
    try: kept.sendall(b'x'); return kept.recv(1)
    except OSError as error: return type(error).__name__
def others():
    print(*(datagram(bound) for bound in (False, True)), earlier())
"""
)
WITH_REPLIES = "'--replies', '10.9.0.2'],"


def test_a_server_answers_the_host_but_opens_no_connection_to_it() -> None:
    code = REACH.replace("'10.9.0.2'],", WITH_REPLIES) + SERVER
    lines = in_network(
        code + "host_reaches_the_server(); now(); others()\n"
        "block(); host_reaches_the_server(); now(); others()\n"
        "block(); host_reaches_the_server()\n"
    )
    # Open first: the test could fail.
    assert lines[0] == "HI"
    assert lines[1] == "reached reached 1 1 False"
    assert lines[2] == "1 1 b'x'"
    assert [each.strip() for each in lines[3:5]] == ["0", "HI"]
    assert lines[5] == "TimeoutError TimeoutError PermissionError PermissionError True"
    assert lines[6] == "PermissionError PermissionError TimeoutError"
    assert [each.strip() for each in lines[7:]] == ["0", "HI"]


def test_without_replies_the_host_gets_no_answer() -> None:
    lines = in_network(REACH + SERVER + "block(); host_reaches_the_server()\n")
    assert [each.strip() for each in lines] == ["0", "TimeoutError"]


@pytest.mark.parametrize("options", [[], ["--replies"]])
def test_a_name_server_on_the_host_can_be_asked_and_nothing_else(
    tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "resolv.conf").write_text("search x\nnameserver 10.9.0.2\n")
    lines = in_network(
        REACH
        + f"""
def block():
    from lab.task.probes import host_block
    host_block.NAME_SERVERS = host_block.Path({str(tmp_path / "resolv.conf")!r})
    print(host_block.main([*{options}, '10.9.0.2']))
def ask(port):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try: yield s.sendto(b'x', ('10.9.0.2', port))
    except OSError as error: yield type(error).__name__
    s = socket.socket(); s.settimeout(0.5)
    try: s.connect(('10.9.0.2', port)); yield 'reached'
    except OSError as error: yield type(error).__name__
block()
print(*ask(53))
print(*ask(7))
now()
"""
    )
    assert lines[0] == "0"
    assert lines[1] == "1 ConnectionRefusedError"  # the neighbour answers: it has no such server
    assert lines[2] == "PermissionError TimeoutError"
    assert lines[3] == "TimeoutError TimeoutError PermissionError PermissionError True"


@pytest.mark.parametrize(
    ("lines", "servers"),
    [
        ("nameserver 10.9.0.2\n", ["10.9.0.2"]),
        ("search dns.podman\nnameserver\nnameserver 10.9.0.9 # 10.9.0.2\n", []),
        ("#nameserver 10.9.0.2\nnameserver 127.0.0.11\n", []),
        ("", []),
    ],
)
def test_only_a_named_host_is_a_name_server(lines: str, servers: list[str]) -> None:
    assert name_servers(lines, ["10.9.0.1", "10.9.0.2"]) == servers


@pytest.mark.parametrize("argv", [["--replies"], ["--replies", "x"], ["10.9.0.2", "--replies"]])
def test_replies_used_wrongly(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert capsys.readouterr().err.startswith("error: ")


# ---- From the client


class Container:
    """A container that answers with these routes, or a short-lived one that ends with this code."""

    def __init__(self, node: str, routes: str = "", code: int = 0, **labels: str) -> None:
        self.id = f"id-{node}"
        self.labels = {"lab.node": node, **labels}
        self.status = "running"
        self.attrs = {"Image": "sha256:beef"}
        self.routes = routes
        self.code = code
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def wait(self, timeout: float) -> dict[str, int]:
        return {"StatusCode": self.code}

    def logs(self, *, stdout: bool) -> bytes:
        return b"error: the kernel has no packet filter: Protocol not supported\n"

    def remove(self, *, force: bool) -> None:
        self.calls.append("remove")


class FakeEngine(Engine):
    """An engine of one project."""

    def __init__(self, version: str, network: dict[str, Any], *containers: Container) -> None:
        super().__init__()
        self.by_id = {each.id: each for each in containers}
        self.added = Container("added")
        self.created: list[tuple[Any, ...]] = []
        api = SimpleNamespace(
            networks=lambda filters: [network],
            exec_create=lambda container, command: {"Id": container},
            exec_start=lambda container: self.by_id[container].routes.encode(),
        )
        self._local.client = SimpleNamespace(
            api=api,
            version=lambda: {"Version": version},
            containers=SimpleNamespace(get=self.by_id.__getitem__),
        )

    def containers(self, *labels: str) -> Any:
        return list(self.by_id.values())

    def create(self, project: str, image: str, command: Any, **options: Any) -> Any:
        self.created.append((project, image, *command, options))
        return self.added


def network(**options: str) -> dict[str, Any]:
    config = [{"Subnet": "172.22.0.0/16", "Gateway": "172.22.0.1"}, {"Subnet": "fd00::/64"}]
    return {"Options": options, "IPAM": {"Config": config}}


@pytest.fixture(autouse=True)
def in_this_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread has its own client; the fake is that of this thread."""

    def for_each(
        self: FakeEngine, doing: str, containers: list[Container], action: Callable[..., Any]
    ) -> list[Any]:
        return [action(each) for each in containers]

    monkeypatch.setattr(FakeEngine, "for_each", for_each, raising=False)


def no_warning(line: str) -> None:
    raise AssertionError(line)


def test_only_open_nodes_get_a_container_with_one_right() -> None:
    engine = FakeEngine(
        "20.10.24",
        network(),
        Container("tf1", HEAD + REJECTED + SUBNET + HOST_ONLY),
        Container("tf2", HEAD + BY_GATEWAY + SUBNET),
        Container("tf3", HEAD + BY_GATEWAY + SUBNET, **{"lab.task": "worker-0"}),
        Container("tf4", HEAD + BY_GATEWAY + SUBNET, **{"lab.reader": "mnist"}),
    )
    stopped = Container("tf5")
    stopped.status = "exited"
    engine.by_id[stopped.id] = stopped
    block_host(engine, "mnist", no_warning)
    options = {
        "network_mode": "container:id-tf2",
        "user": "0:0",
        "cap_add": ["NET_ADMIN"],
        "labels": {},
    }
    command = ("python", "-m", MODULE, "172.22.0.1")
    assert engine.created == [("mnist", "sha256:beef", *command, options)]
    assert engine.added.calls == ["start", "remove"]


@pytest.mark.parametrize(
    ("version", "blocks"), [("28.0.0", 0), ("29.1", 0), ("27.5.1", 1), ("20.10.24", 1), ("dev", 1)]
)
def test_an_isolated_network_needs_no_container_if_the_engine_knows_it(
    version: str, blocks: int
) -> None:
    isolated = network(**dict.fromkeys(ISOLATED, "isolated"))
    engine = FakeEngine(version, isolated, Container("tf1", HEAD + SUBNET))
    block_host(engine, "mnist", no_warning)
    assert len(engine.created) == blocks


def test_a_bridge_without_a_configured_gateway_has_the_first_address() -> None:
    unnamed = network()
    del unnamed["IPAM"]["Config"][0]["Gateway"]
    assert list(host_block.host_addresses(unnamed)) == ["172.22.0.1"]
    assert list(host_block.host_addresses({"IPAM": {"Config": None}})) == []


def test_a_container_that_may_answer_the_host() -> None:
    engine = FakeEngine("28.5.2", network())
    seat: Any = Container("ada", HEAD + BY_GATEWAY + SUBNET)
    engine.by_id[seat.id] = seat
    block_container(
        engine, "class", ["10.89.0.17"], seat, "ada", replies=True, labels={"lab.class": "w"}
    )
    ((project, image, *command, options),) = engine.created
    assert (project, image) == ("class", "sha256:beef")
    assert command == ["python", "-m", MODULE, "--replies", "10.89.0.17"]
    assert options == {
        "network_mode": "container:id-ada",
        "user": "0:0",
        "cap_add": ["NET_ADMIN"],
        "labels": {"lab.class": "w"},
    }
    assert engine.added.calls == ["start", "remove"]


def test_a_container_that_is_blocked_already() -> None:
    engine = FakeEngine("28.5.2", network())
    seat: Any = Container("ada", HEAD + REJECTED + SUBNET)
    engine.by_id[seat.id] = seat
    block_container(engine, "class", ["10.89.0.17"], seat, "ada", replies=True)
    assert engine.created == []


def test_a_container_that_cannot_be_blocked() -> None:
    engine = FakeEngine("28.5.2", network())
    seat: Any = Container("ada", HEAD + SUBNET)
    engine.by_id[seat.id] = seat
    engine.added.code = 1
    with pytest.raises(LabError) as caught:
        block_container(engine, "class", ["10.89.0.17"], seat, "ada")
    assert str(caught.value) == ("ada: the kernel has no packet filter: Protocol not supported")
    assert engine.added.calls == ["start", "remove"]


def test_a_refusal_is_a_warning() -> None:
    engine = FakeEngine("28.5.2", network(), Container("tf1", HEAD + SUBNET))
    engine.added.code = 1
    output: list[str] = []
    block_host(engine, "mnist", output.append)
    assert output == [
        "warning: tasks can reach this host: node tf1: the kernel has no packet filter: Protocol"
        " not supported"
    ]
    assert engine.added.calls == ["start", "remove"]
