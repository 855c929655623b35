"""A program that does the harm that its first argument names; worker-0 alone does it.

A second argument says how long it trains after that, in seconds.
"""

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

RUN = Path(os.environ["LAB_RUN_DIR"])
DONE = RUN / "harm.done"
RECORD = "lab kind=step local_step={0} global_step={0} loss=0.5"


def litter() -> None:
    """Write files under the names that lab uses itself."""
    for name in (
        *("report.html", "run.json", "summary.json", "figures/loss.png", "tasks/mine.csv"),
        *("tasks/worker-0.jsonl", "status/x", "logs/worker-0.log", ".hidden", "empty"),
    ):
        path = Path(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("" if name == "empty" else f"mine: {name}")


def wipe() -> None:
    """Remove the files in the working directory, as many programs do before they train."""
    Path("logs").mkdir()
    Path("logs/events").write_text("old")
    shutil.rmtree("logs")
    os.system("rm -rf * .[!.]*")  # noqa: S605
    shutil.rmtree(Path.cwd())


def links() -> None:
    """Leave links, a pipe and a socket."""
    Path("passwd").symlink_to("/etc/passwd")
    Path("dangling").symlink_to("nowhere")
    Path("loop").symlink_to("loop")
    Path("folder").symlink_to("/etc")
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    Path("plain").write_text("mine")


def names() -> None:
    """Write files under names that a terminal, a shell or a file system may not like."""
    for name in (b"x" * 250, b"new\nline", b"esc\x1b[31m", b"\xff\xfe", b"$(touch pwned)", b"-rf"):
        Path(os.fsdecode(name)).write_bytes(b"mine")
    Path(*["deep"] * 150).mkdir(parents=True)
    Path(*["deep"] * 150, "plain").write_text("mine")


def collide() -> None:
    """Write a file of the run under a name that lab uses in `runs/<id>/`."""
    (RUN / "report.html").write_text("mine")


def forge() -> None:
    """Append a record to another task's file."""
    with (RUN / "tasks/worker-1.jsonl").open("a") as file:
        file.write('{"kind": "step", "global_step": 123456, "local_step": 1, "loss": 0.0}\n')


def steal() -> None:
    """Put a link and a pipe where the records and the log of a task are."""
    link, pipe = RUN / "link", RUN / "pipe"
    link.symlink_to("/dev/zero")
    os.mkfifo(pipe)
    link.replace(RUN / "tasks/worker-1.jsonl")  # its agent may write both at any moment
    pipe.replace(RUN / "logs/worker-1.log")


def vanish() -> None:
    """Remove all records and logs of the run."""
    for name in ("tasks", "logs"):
        (RUN / name).rename(RUN / f"old.{name}")  # an agent may write there at any moment
        shutil.rmtree(RUN / f"old.{name}")


def confuse() -> None:
    """Put pipes and odd JSON where the states and requests of the run are."""
    os.mkfifo(RUN / "faults.json")
    for name in ("worker-1", "ps-0"):
        pipe = RUN / f"pipe.{name}"
        os.mkfifo(pipe)
        pipe.replace(RUN / "status" / f"{name}.json")  # its agent may write it at any moment
    (RUN.parent / "requests/odd.json").write_text("[" * 100_000)
    os.mkfifo(RUN.parent / "requests/pipe.json")


def main() -> None:
    """Print records around the harm, which is done while all tasks are there."""
    arguments = [word for word in sys.argv[1:] if not word.startswith("--")]
    harm, seconds, *_ = [*arguments, "0"]
    for step in (1, 2):
        print(RECORD.format(step), flush=True)
    task = os.environ["LAB_TASK"]
    # The task's agent reads the output a little later.
    records = RUN / f"tasks/{task}.jsonl"
    wait_until(lambda: records.exists() and records.read_text().count("\n") == 2)
    (RUN / f"harm.{task}").touch()
    cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
    tasks = [f"{job}-{place}" for job, hosts in cluster.items() for place in range(len(hosts))]
    wait_until(lambda: all((RUN / f"harm.{each}").exists() for each in tasks))
    if task == "worker-0":
        globals()[harm]()
        DONE.touch()
    wait_until(DONE.exists)
    until = time.monotonic() + float(seconds)
    for step in count(3):
        print(RECORD.format(step), flush=True)
        if time.monotonic() >= until:
            break
        time.sleep(0.1)
    print("the last line", flush=True)


def wait_until(ready: Callable[[], bool]) -> None:
    """Wait for a condition; lab ends a run that stalls."""
    while not ready():
        time.sleep(0.05)


main()
