"""All commands, in the order in which help shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Command:
    """One command of the command line.

    Attributes:
        name: What the user types.
        group: The heading under which help shows it.
        summary: One line.
        examples: Two command lines that work.
        module: The module in `lab.cli.commands` whose function `command` it is.
        matters: Whether a newcomer is shown it at once.
        notes: Lines that help shows before the examples.
    """

    name: str
    group: str
    summary: str
    examples: tuple[tuple[str, str], ...]
    module: str
    matters: bool = False
    notes: tuple[str, ...] = ()


DESCRIBE: Final = "describe"
ENVIRONMENT: Final = "environment"
RUN: Final = "run"
HELP: Final = "help"

COMMANDS: Final[Mapping[str, Command]] = {
    command.name: command
    for command in (
        Command(
            "run",
            RUN,
            "train an experiment and collect what every task says",
            (
                ("lab run async --epochs 2", "three workers, each on its own"),
                (
                    "lab run sync --cluster clusters/book.yaml --backend local --epochs 1",
                    "without containers",
                ),
                (
                    'lab run async --on-failure restart --fault "kill worker-1 after 500 steps"',
                    "a worker that dies comes back",
                ),
                (
                    "lab run --listing printed.py --cluster clusters/book.yaml",
                    "a program that a book of 2017 prints, unchanged",
                ),
            ),
            "run",
            matters=True,
            notes=(
                "worker-0=a.py,worker-1=b.py in the place of a program gives each task its own.",
                "All lie in one directory. A service, such as ps-0, may go without.",
            ),
        ),
        Command(
            "attach",
            RUN,
            "follow a run whose helper has gone, and bring it home",
            (
                ("lab attach", "the newest one; Ctrl-C leaves it going"),
                ("lab attach last --json", "its summary at the end, for a program"),
            ),
            "attach",
        ),
        Command(
            "cancel",
            RUN,
            "ask the tasks of a run to end",
            (
                ("lab cancel", "the newest one"),
                ("lab cancel 20261121-0810-async-7f3a", "one by its id, or the beginning of it"),
            ),
            "cancel",
        ),
        Command(
            "fault",
            RUN,
            "do a fault to a run: kill, pause or slow a task, cut off or slow a node",
            (
                ("lab fault kill worker-1", "in the newest run, at once"),
                ("lab fault pause:10s worker-1 after 500 steps", "as soon as it is that far"),
            ),
            "fault",
            notes=(
                "kill                  end the program of a task, as a crash does (SIGKILL)",
                "stop                  ask it to end (SIGTERM)",
                "pause:10s             let it stand still for so long",
                "slow:0.3,30s          let it run for that share of the time, so long",
                "cut:5s                take a node off the network for so long",
                "link:rate=10mbit,delay=20ms,30s",
                "                      slow and delay what a node sends, so long",
                "A target is a task, a node (all of its tasks) or random. `lab run --fault` takes",
                "the same, several with semicolons between them.",
            ),
        ),
        Command(
            "show",
            RUN,
            "the table of one run, again from its files",
            (
                ("lab show last", "the newest run"),
                ("lab show last --json", "its summary, for a program"),
            ),
            "show",
            matters=True,
        ),
        Command(
            "runs",
            RUN,
            "all runs that are at home",
            (
                ("lab runs", "the newest last"),
                ("lab runs --runs-dir /tmp/runs --json", "those of another directory"),
            ),
            "runs",
            matters=True,
        ),
        Command(
            "compare",
            RUN,
            "runs side by side: how they were made, what came out, difference and ratio",
            (
                ("lab compare 20260101-0000 last", "the newest run, held against another"),
                ("lab compare 20260101-0000 last --json", "the same for a program"),
            ),
            "compare",
        ),
        Command(
            "tensorboard",
            RUN,
            "show runs in TensorBoard, on a page of this machine alone",
            (
                ("lab tensorboard last --port 6006", "the newest run; Ctrl-C ends it"),
                ("lab tensorboard --write-only", "all runs at home: the files of events alone"),
            ),
            "tensorboard",
            notes=(
                "The files are made of the records: `runs/<id>/tb/<task>/`, anew where these are",
                "newer. A program's own summaries are shown beside. Of a run that is under way you",
                "see what there is at the start.",
            ),
        ),
        Command(
            "report",
            RUN,
            "one page with the figures and tables of one run, or of several",
            (
                ("lab report last", "the newest run: report.html in its directory"),
                (
                    "lab report 20260101-0000-async-aaaa last --output both.html",
                    "several, and where to",
                ),
            ),
            "report",
            notes=(
                "The page needs no network and no other file. Its figures are kept as PNG and SVG,",
                "too, in figures/ beside it; those of --output both.html in both-figures/.",
                "--output replaces an older page, and no other file.",
            ),
        ),
        Command(
            "predict",
            RUN,
            "let a run's saved model answer: its accuracy, some digits, a picture of your own",
            (
                ("lab predict last", "the test set, and some digits of it as a picture"),
                ("lab predict last tests/golden/digits/seven.png", "a picture of your own"),
            ),
            "predict",
        ),
        Command(
            "collect",
            RUN,
            "bring home what is still on the run volumes",
            (
                ("lab collect", "every run that is not complete at home"),
                ("lab collect last", "one run; no line comes twice"),
            ),
            "collect",
        ),
        Command(
            "data",
            RUN,
            "write MNIST as a file that a printed program reads",
            (
                ("lab data tfrecords", "output.tfrecords in this directory"),
                ("lab data tfrecords digits.tfrecord", "another name"),
            ),
            "data",
            notes=(
                "tfrecords: the training images as tf.train.Example, with image_raw (784 bytes),",
                "label, pixels, height and width. `lab run --listing` copies such a file with the",
                "program.",
            ),
        ),
        Command(
            "sweep",
            RUN,
            "run an experiment at every point of a grid, and say what follows from what",
            (
                (
                    'lab sweep staleness --over "workers=1,2,4" --cluster clusters/laptop.yaml',
                    "what gradients that come late do to the loss",
                ),
                (
                    'lab sweep async --over "batch_size=50,100" --repeats 1 --epochs 1 --csv b.csv',
                    "a row for each run in a file",
                ),
            ),
            "sweep",
            notes=(
                "Whether a figure rises or falls is judged along the first quantity, while all the",
                "others are held. `workers` varies how many tasks job `worker` has. All points are",
                "tried with the same seeds.",
            ),
        ),
        Command(
            "reproduce",
            RUN,
            "run what a book or a blog tells of, and judge each of its claims",
            (
                ("lab reproduce book-async --quick", "three trainings of the chapter, for a class"),
                (
                    "lab reproduce book-async --runs last --json",
                    "a run that exists already; for a program",
                ),
            ),
            "reproduce",
            notes=(
                "PASS                as the source claims",
                "OUTSIDE_BAND        it is not (exit code 1)",
                "TOO_GOOD            better than this training can be (exit code 1)",
                "INSUFFICIENT_RUNS   too few runs to tell (exit code 3)",
                "NOT_COMPARABLE      the source prints nothing, or the runs were shorter (3)",
                "docs/reproduce.md tells how each band was derived.",
            ),
        ),
        Command(
            "simulate",
            RUN,
            "predict how fast a training would be with more workers, or on another box",
            (
                (
                    "lab simulate async --workers 1,8,64 --ps 1,4 --network 100gbit --step 2ms",
                    "a machine for each task, and cards that take 2 ms for a batch",
                ),
                (
                    "lab simulate sync --cluster clusters/book.yaml --json",
                    "a description's tasks on this box, for a program",
                ),
            ),
            "simulate",
            notes=(
                "Nothing is trained: every figure is a prediction, of softmax regression on MNIST,",
                "from what each part of a step was measured to cost. docs/scaling.md tells how far",
                "such predictions were off where they could be checked.",
            ),
        ),
        Command(
            "experiments",
            RUN,
            "the experiments and the flags of their programs",
            (
                ("lab experiments", "all of them"),
                ("lab experiments async", "the flags of one"),
            ),
            "experiments",
        ),
        Command(
            "up",
            ENVIRONMENT,
            "boot the environment: every task waits for a run",
            (
                ("lab up", "on containers where an engine answers, else on processes"),
                (
                    "lab up --backend local --cluster clusters/book.yaml --gpus none",
                    "on processes, without GPUs",
                ),
            ),
            "up",
            matters=True,
        ),
        Command(
            "down",
            ENVIRONMENT,
            "collect what is not at home yet, then remove the environment",
            (
                ("lab down", "the one of ./cluster.yaml"),
                ("lab down --all --yes", "all that `lab ls` shows, without asking"),
            ),
            "down",
            matters=True,
        ),
        Command(
            "ls",
            ENVIRONMENT,
            "the environments that are up, on every backend",
            (
                ("lab ls", "from any directory"),
                ("lab ls --json", "for a program"),
            ),
            "ls",
        ),
        Command(
            "ps",
            ENVIRONMENT,
            "the tasks of an environment, and where its newest run stands",
            (
                ("lab ps", "the environment of ./cluster.yaml"),
                ("lab ps mnist --json", "one by its name, for a program"),
            ),
            "ps",
        ),
        Command(
            "logs",
            RUN,
            "the lines that programs printed, of a run or of an environment",
            (
                ("lab logs last --task worker-0", "one task of the newest run"),
                ("lab logs --follow", "all tasks of the environment, until Ctrl-C"),
            ),
            "logs",
        ),
        Command(
            "shell",
            ENVIRONMENT,
            "a shell in the place of a task",
            (
                ("lab shell worker-0", "where worker-0 runs"),
                ("lab shell ps-0 --name mnist", "in an environment by its name"),
            ),
            "shell",
        ),
        Command(
            "gpus",
            DESCRIBE,
            "the cards of this box, and which task holds each",
            (
                ("lab gpus", "a table, and what each task really sees"),
                ("lab gpus --json", "for a program"),
            ),
            "gpus",
        ),
        Command(
            "init",
            DESCRIBE,
            "write a cluster description for this box",
            (
                ("lab init", "cluster.yaml, from the cards that the driver names"),
                ("lab init --gpus 4 --output -", "for a box with 4 GPUs, to look at"),
            ),
            "init",
        ),
        Command(
            "render",
            DESCRIBE,
            "write docker-compose.yml from the cluster description",
            (
                ("lab render", "with the cards of this box"),
                ("lab render clusters/book.yaml --output -", "of another description, to look at"),
                ("lab render --check", "exit 1 and a diff when the file is stale"),
                ("lab render --picture cluster.svg", "and a picture of the cluster"),
            ),
            "render",
        ),
        Command(
            "validate",
            DESCRIBE,
            "check a cluster description: all faults at once",
            (
                ("lab validate", "./cluster.yaml"),
                ("lab validate clusters/book.yaml --json", "another description, for a program"),
            ),
            "validate",
        ),
        Command(
            "schema",
            DESCRIBE,
            "the JSON Schema of the cluster description",
            (
                ("lab schema", "print it"),
                ("lab schema > cluster.schema.json", "for an editor"),
            ),
            "schema",
        ),
        Command(
            "build",
            DESCRIBE,
            "build the image of the tasks",
            (
                ("lab build", "for the box as it is"),
                ("lab build --gpus none", "with TensorFlow for CPUs"),
            ),
            "build",
        ),
        Command(
            "doctor",
            DESCRIBE,
            "what this box can and cannot do, and how to mend it",
            (
                ("lab doctor", "look at everything; nothing is changed"),
                ("lab doctor --json", "for a program; exit code 1 when something needed fails"),
            ),
            "doctor",
        ),
        Command(
            "completion",
            HELP,
            "the script that lets a shell complete lab's words at Tab",
            (
                (
                    "lab completion bash > ~/.local/share/bash-completion/completions/lab",
                    "for bash with the package bash-completion",
                ),
                ("lab completion fish > ~/.config/fish/completions/lab.fish", "for fish"),
            ),
            "completion",
            notes=(
                "Write it to a file where your shell finds it, and anew after an update of lab:",
                "  bash   ~/.local/share/bash-completion/completions/lab",
                "  zsh    ~/.zfunc/_lab, and in ~/.zshrc:",
                "         fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit",
                "  fish   ~/.config/fish/completions/lab.fish",
                "Without bash-completion, source the file in ~/.bashrc.",
            ),
        ),
    )
}
