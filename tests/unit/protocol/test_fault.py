"""Faults of a node's network, in a separate network where the kernel allows one to this user."""

from __future__ import annotations

import errno
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyroute2
import pytest

from lab.protocol.experiments.faults import parse
from lab.protocol.network import fault as netfault
from lab.protocol.network.fault import fault_of
from tests.support.network import Netlink, in_network

FAULTS = "cut:5s cut:0.5s link:rate=10mbit,30s link:delay=2ms,4s link:rate=9kbit,delay=1us,4s"


@pytest.mark.parametrize("text", FAULTS.split())
def test_fault_arguments(text: str) -> None:
    fault = parse(f"{text} tf2 after 5s")
    assert fault.action == text
    assert replace(fault, target="node", when=None) == fault_of((fault.action,))


WRONG = "cut cut:0s cut:nan cut:9999s link:5s link:rate=x,5s link:rate=8mbit,-5s pause:5s"


@pytest.mark.parametrize(
    ("argv", "environ", "why"),
    [
        *((argv, {}, "") for argv in ((), ("cut:5s", "6"), ("cut:5s tf1 after 5s",))),
        *(((word,), {}, "") for word in WRONG.split()),
        (("cut:5s",), {"LAB_LINK": "fast"}, "LAB_LINK is not a rate and a delay"),
    ],
)
def test_used_wrongly(
    argv: tuple[str, ...], environ: dict[str, str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert netfault.main(argv, environ) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"error: {why}")
    assert output.err.count("\n") == 1


@pytest.fixture
def nothing_holds_signals() -> Iterator[None]:
    """The mask of this thread, which the module changes for its own process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


pytestmark = pytest.mark.usefixtures("nothing_holds_signals")


class Kernel(Netlink):
    """One that refuses to change an interface."""

    def get_routes(self, **_: object) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("code", "fault", "why"),
    [
        (errno.EPERM, "cut:5s", "the kernel refused the change: Operation not permitted"),
        (
            errno.ENOENT,
            "link:delay=5ms,5s",
            "this kernel has no netem, which the delay of a link needs",
        ),
    ],
)
def test_a_kernel_that_refuses(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
    fault: str,
    why: str,
) -> None:
    monkeypatch.setattr(pyroute2, "IPRoute", lambda: Kernel(code))
    assert netfault.main([fault], {}) == 1
    assert capsys.readouterr().err.startswith(f"error: {why}")


def test_a_cut_drops_all_traffic_and_restores_it() -> None:
    lines = in_network(
        "before = here()\n"
        "c = socket.create_connection(('10.9.0.2', 7)); c.sendall(b'a'); c.recv(1)\n"
        "p, ready = fault('cut:2s')\n"
        "print(ready)\n"
        "print(here()[0])\n"
        "c.settimeout(0.3)\n"
        "try:\n"
        "    c.sendall(b'b'); c.recv(1); print('it came through')\n"
        "except (TimeoutError, OSError) as error:\n"
        "    print('cut')\n"
        "print(p.wait(), p.stderr.read() == '')\n"
        "print(here() == before, before)\n"
        "c.settimeout(None)\n"
        "print(c.recv(1))\n"
    )
    assert lines[:4] == ["v0 is off the network for 2 s", "False", "cut", "0 True"]
    assert lines[4].startswith("True (True, 65535, ['10.9.0.1'], [")
    assert "('10.8.0.0', '10.9.0.2', 7)" in lines[4]
    assert lines[5] == "b'b'"


def test_a_cut_ends_at_once_on_request() -> None:
    lines = in_network(
        "before = here()\n"
        "p, ready = fault('cut:3600s')\n"
        "q, refused = fault('cut:60s')\n"
        "print(q.wait(), refused, q.stderr.read().strip())\n"
        "p.send_signal(signal.SIGTERM)\n"
        "print(p.wait(), here() == before)\n"
    )
    assert lines == [
        "1  error: another network fault is active on this node; wait until it ends",
        "0 True",
    ]


def test_a_slow_link_lasts_its_time_and_is_restored() -> None:
    lines = in_network(
        "from lab.protocol.network.link import apply_link\n"
        "def seconds():\n"
        "    began = time.monotonic()\n"
        "    c.sendall(bytes(400_000)); got = 0\n"
        "    while got < 400_000: got += len(c.recv(1 << 20))\n"
        "    return time.monotonic() - began\n"
        "c = socket.create_connection(('10.9.0.2', 7)); seconds()\n"
        "before = here()\n"
        "p, ready = fault('link:rate=4mbit,3s')\n"
        "print(ready)\n"
        "print(here())\n"
        "slow = seconds(); print(slow > 0.3)\n"
        "print(p.wait(), here() == before)\n"
        "print(seconds() < slow)\n"
        "apply_link(1_000_000_000, None)\n"
        "before = here()\n"
        "p, ready = fault('link:rate=4mbit,1s', LAB_LINK='1000000000 0')\n"
        "print(here()[4])\n"
        "print(p.wait(), here() == before, before[4])\n"
    )
    assert lines[0] == "v0 is slowed for 3 s"
    # The size of packets stays: connections that are open have agreed on it.
    assert lines[1].startswith("(True, 65535, ")
    assert lines[1].endswith("[('tbf', '500000')])")
    assert lines[2:5] == ["True", "0 True", "True"]
    assert lines[5] == "[('tbf', '500000')]"
    assert lines[6] == "0 True [('tbf', '125000000')]"
