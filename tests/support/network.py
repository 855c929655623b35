"""A node's network with one neighbour, in namespaces of this user."""

from __future__ import annotations

import os
import sys
from typing import Any

import pyroute2

from tests.support.agents import ROOT
from tests.support.commands import run_command
from tests.support.conditions import lacking

LEAD = """
import atexit, os, signal, socket, subprocess, sys, time
from pyroute2 import IPRoute
n = IPRoute()
n.link('set', index=1, state='up')
n.link('add', ifname='v0', kind='veth', mtu=65535, peer={'ifname': 'v1', 'mtu': 65535})
i, j = (n.link_lookup(ifname=name)[0] for name in ('v0', 'v1'))
n.addr('add', index=i, address='10.9.0.1', prefixlen=24)
n.link('set', index=i, state='up')
# The other end lies in a network of its own, as another node's does.
far = subprocess.Popen(['unshare', '--net', sys.executable, '-c', '''
import sys
from pyroute2 import IPRoute
print(flush=True)
sys.stdin.readline()
n = IPRoute()
j = n.link_lookup(ifname='v1')[0]
n.addr('add', index=j, address='10.9.0.2', prefixlen=24)
n.link('set', index=j, state='up')
print(flush=True)
import socket
server = socket.create_server(('10.9.0.2', 7))
print(flush=True)
peer, _ = server.accept()
while data := peer.recv(1 << 20):
    peer.sendall(data)
'''], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
atexit.register(far.kill)
far.stdout.readline()
n.link('set', index=j, net_ns_pid=far.pid)
far.stdin.write(b'go\\n'); far.stdin.flush()
far.stdout.readline()
n.route('add', dst='10.8.0.0/24', gateway='10.9.0.2', priority=7)
far.stdout.readline()
def here():
    link = n.get_links(i)[0]
    routes = sorted((r.get('dst'), r.get('gateway'), r.get('priority'))
                    for r in n.get_routes(family=socket.AF_INET, oif=i, table=254))
    addresses = [a.get('local') for a in n.get_addr(index=i, family=socket.AF_INET)]
    kinds = sorted((q.get('kind'), str(q.get('TCA_OPTIONS') and q.get('TCA_OPTIONS')
                    .get('TCA_TBF_PARMS') and q.get('TCA_OPTIONS').get('TCA_TBF_PARMS')['rate']))
                   for q in n.get_qdiscs(index=i) if q.get('kind') in ('tbf', 'netem'))
    return bool(link['flags'] & 1), link.get('mtu'), addresses, routes, kinds
def fault(*words, **variables):
    p = subprocess.Popen([sys.executable, '-m', 'lab.protocol.network.fault', *words],
        env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return p, p.stdout.readline().strip()
"""


def in_network(code: str) -> list[str]:
    """Run code on a node with one neighbour; under CI there must be one."""
    done = run_command(
        ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", LEAD + code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        lacking("this kernel allows no network namespaces to this user")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


class Netlink:
    """A kernel that refuses: the link's disciplines with this error, everything else likewise."""

    def __init__(self, code: int, interfaces: int = 1) -> None:
        self.error = pyroute2.NetlinkError(code, os.strerror(code))
        self.interfaces = interfaces

    def __enter__(self) -> Netlink:
        return self

    def __exit__(self, *args: object) -> None:
        return

    def get_links(self) -> list[dict[str, Any]]:
        return [Interface(position) for position in range(self.interfaces)]

    def get_qdiscs(self, index: int) -> list[Any]:
        return []

    def tc(self, *args: object, **options: object) -> None:
        raise self.error

    def link(self, *args: object, **options: object) -> None:
        raise self.error


class Interface(dict[str, Any]):
    def __init__(self, position: int) -> None:
        super().__init__(index=position, flags=1, ifname=f"eth{position}")
