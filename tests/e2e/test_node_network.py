"""The switch between pseudo-nodes, in both of its kinds: nodes receive what others send."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.backends.local import isolation
from tests.support.commands import ROOT, run_command
from tests.support.conditions import lacking, needs_namespaces

ONE_WAY = 31_400 * 200

TALK = """
import json, socket, subprocess, sys, time
from pathlib import Path
from pyroute2 import IPRoute
from lab.backends.local import network
from lab.backends.local.state import address
from lab.backends.local.state import NodeRecord
from lab.cluster.placement.plan import Link

ROLE, SIZE = sys.argv[1], int(sys.argv[2])
if ROLE == "server":
    with socket.create_server(("0.0.0.0", 2222)) as listener:
        print("listens", flush=True)
        peer, (address, _) = listener.accept()
        peer.sendall(bytes(SIZE))
        peer.close()
        print(json.dumps([socket.gethostname(), address]))
elif ROLE == "client":
    began, got = time.monotonic(), 0
    with socket.create_connection(("tf1", 2222)) as peer:
        while piece := peer.recv(1 << 20):
            got += len(piece)
    seconds = time.monotonic() - began
    with IPRoute() as netlink:
        device = next(x for x in netlink.get_links() if x.get_attr("IFLA_IFNAME") == "eth0")
        kind = device.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_KIND")
    print(json.dumps([got, seconds, kind]))
else:
    if ROLE == "bridge":
        network._switch = network._bridge
    rate = int(sys.argv[3])
    link = Link(rate_bits=rate) if rate else None
    links = {"tf1": link, "tf2": None}
    nodes = [NodeRecord(name, address(n), links[name]) for n, name in enumerate(links)]
    hosts = Path(sys.argv[4])
    hosts.write_text(network.hosts_text(nodes))
    spaces = network.build(nodes, hosts)

    def on(node, role):
        space = spaces[node]
        return subprocess.Popen(
            [*space.enter(), sys.executable, __file__, role, sys.argv[2]],
            pass_fds=space.descriptors(), stdout=subprocess.PIPE, text=True,
        )

    server = on("tf1", "server")
    assert server.stdout.readline() == "listens\\n"
    client = on("tf2", "client")
    said = [json.loads(each.communicate()[0].splitlines()[-1]) for each in (server, client)]
    print(json.dumps(said))
"""


def talk(tmp_path: Path, switch: str, rate_bits: int) -> tuple[list[Any], list[Any]]:
    needs_namespaces()
    script = tmp_path / "talk.py"
    script.write_text(TALK)
    words = [sys.executable, script, switch, str(ONE_WAY), str(rate_bits), tmp_path / "hosts"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = run_command([*isolation.UNSHARE, *words], env=env)
    assert done.returncode == 0, done.stderr
    server, client = json.loads(done.stdout)
    return server, client


@pytest.mark.parametrize(("switch", "kind"), [("best", "macvlan"), ("bridge", "veth")])
def test_nodes_connect_and_links_limit_on_either_switch(
    tmp_path: Path, switch: str, kind: str
) -> None:
    server, (got, seconds, found) = talk(tmp_path, switch, 50_000_000)
    assert server == ["tf1", "10.77.0.3"]
    assert got == ONE_WAY
    # A second's worth at 50 Mbit/s; the bucket lets a twentieth of that pass at once.
    assert seconds > 0.8 * ONE_WAY * 8 / 50_000_000
    if (kind, found) == ("macvlan", "veth"):
        lacking("this kernel has no macvlan")
    assert found == kind
