"""The health checks of containers, and the process that applies a node's link."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.protocol.network.link import link_of
from lab.task.node import health
from tests.support.agents import PATIENCE_S, ROOT, wait_for
from tests.support.commands import python
from tests.support.network import in_network
from tests.support.shown import assert_shows


class Container:
    """What a health check sees, in a directory."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.ready, self.devices, self._patch = folder / "ready", folder / "dev", patch
        self.heartbeat, self._net = folder / "agents/worker-0.json", folder / "net"
        for directory in (self.devices, self._net, self.heartbeat.parent):
            directory.mkdir()
        self.interface("lo", 0x9)
        self.interface("eth0", 0x1003)
        known, lost_gpu, has_network = folder / "known", health.lost_gpu, health.has_network
        patch.setattr(health, "READY_FILE", self.ready)
        patch.setattr(health, "SEEN_FILE", folder / "seen")
        patch.setattr(health, "lost_gpu", lambda: lost_gpu(self.devices, known))
        patch.setattr(health, "has_network", lambda: has_network(self._net))
        for name, value in {"RUNS": str(folder), "TASK": "worker-0", "PROJECT": "mnist"}.items():
            patch.setenv(f"LAB_{name}", value)

    def interface(self, name: str, flags: int) -> None:
        (self._net / name).mkdir(exist_ok=True)
        (self._net / name / "flags").write_text(f"{flags:#x}\n")

    def may_open(self, *names: str) -> None:
        """Replace the kernel's answer, which comes from the container's cgroup."""
        self._patch.setattr(
            os, "access", lambda path, _mode: Path(path).name in names and Path(path).exists()
        )


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Container:
    return Container(tmp_path, monkeypatch)


def test_a_task_is_healthy_with_a_heartbeat_and_a_network(container: Container) -> None:
    assert health.main(["task"]) == 1
    container.heartbeat.touch()
    assert health.main(["task"]) == 0
    os.utime(container.heartbeat, (time.time() - 20, time.time() - 20))
    assert health.main(["task"]) == 1
    container.heartbeat.touch()
    container.interface("eth0", 0x80)
    assert health.main(["task"]) == 1
    container.interface("eth1", 0x1003)  # of any name
    assert health.main(["task"]) == 0
    assert health.main([]) == 2


def test_a_removed_gpu_is_named_and_an_added_one_is_no_fault(
    container: Container, capsys: pytest.CaptureFixture[str]
) -> None:
    container.heartbeat.touch()
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl"):
        (container.devices / name).touch()
    container.may_open("nvidia0", "nvidia1")  # and never the third
    assert health.main(["task"]) == 0
    container.may_open("nvidia0")
    assert health.main(["task"]) == 1
    printed = capsys.readouterr().out
    assert printed == (
        f"GPU lost: {container.devices}/nvidia1 cannot be opened: permission denied; run"
        " `docker restart mnist-worker-0-1`; repeat it after each `systemctl daemon-reload`\n"
    )
    line = printed.replace(str(container.devices), "/dev")
    assert_shows("docs/how-to/gpus.md", "GPU lost: ", line, figures=False)
    container.may_open("nvidia0", "nvidia1")
    (container.devices / "nvidia2").unlink()
    (container.devices / "nvidia7").touch()
    assert health.main(["task"]) == 0
    health.SEEN_FILE.unlink()
    (container.devices / "nvidia0").unlink()
    assert health.main(["task"]) == 1
    assert "nvidia0 is missing; run `docker restart" in capsys.readouterr().out


def test_first_check_returns_at_once_and_a_later_one_watches(
    container: Container, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now, looks
        now, looks = now + seconds, looks + 1
        if looks == 130:
            container.ready.unlink()

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.delenv("LAB_RUNS")  # an anchor has no volume
    assert (health.main(["anchor"]), looks) == (1, 0)
    container.ready.touch()
    assert (health.main(["anchor"]), looks) == (0, 0)
    assert (health.main(["anchor"]), looks, now) == (0, 120, health.WATCH_S)
    # The link fails while the next check runs: it is reported at once, and so is the recovery.
    assert (health.main(["anchor"]), looks) == (1, 130)
    container.ready.touch()
    assert (health.main(["anchor"]), looks) == (0, 130)


def test_link_of_a_pause() -> None:
    assert link_of({}) == (None, None)
    environ = {"LAB_LINK": "100000000 5000"}
    assert link_of(environ) == (100_000_000, 5000)
    assert link_of({"LAB_LINK": "0 5000"}) == (None, 5000)


@pytest.mark.parametrize(
    "text",
    ["", "x", "-1 0", "1", "1e6 0", "٣ 0", f"{9e29:.0f} 0", f"{9e17:.0f} 0", f"0 {9e17:.0f}"],
)
def test_a_link_without_two_whole_numbers_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"LAB_LINK (is not a rate and a delay|exceeds)"):
        link_of({"LAB_LINK": text})


ANCHOR = (
    "import signal, sys\n"
    "from pathlib import Path\n"
    "from lab.task.node import anchor\n"
    "anchor.READY_FILE = Path(sys.argv[1])\n"
    "sys.exit(anchor.main())\n"
)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_pause_is_ready_until_stopped(tmp_path: Path, number: signal.Signals) -> None:
    ready = tmp_path / "ready"
    process = subprocess.Popen([sys.executable, "-c", ANCHOR, str(ready)], cwd=ROOT)
    wait_for(ready.exists, "the anchor is ready")
    process.send_signal(number)
    assert process.wait(timeout=PATIENCE_S) == 0
    assert not ready.exists()


def test_pause_with_a_wrong_link(tmp_path: Path) -> None:
    done = python(
        "-c", ANCHOR, str(tmp_path / "ready"), cwd=ROOT, env={**os.environ, "LAB_LINK": "fast"}
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: LAB_LINK is not a rate and a delay")
    assert not (tmp_path / "ready").exists()


def test_rate_of_a_link_can_be_changed_and_needs_an_interface() -> None:
    lines = in_network(
        "from lab.protocol.network.link import LinkError, apply_link\n"
        "for rate in (1_000_000_000, 8_000_000):\n"
        "    print(apply_link(rate, None), here()[4])\n"
        "n.link('set', index=i, state='down')\n"
        "try:\n"
        "    apply_link(8_000_000, None)\n"
        "except LinkError as error:\n"
        "    print(error)\n"
    )
    assert lines == [
        "v0 [('tbf', '125000000')]",
        "v0 [('tbf', '1000000')]",
        "a link needs one network interface; found: none",
    ]
