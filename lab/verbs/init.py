"""`lab init`.

Examples:
    # write cluster.yaml for the GPUs of this host, the programs and the image's Dockerfile
    lab init
    # for another host with 4 GPUs, printed to stdout
    lab init --gpus 4 --output -
    # add an example experiment and lesson to edit; an existing config is kept
    lab init --course
"""

from __future__ import annotations

import filecmp
import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from lab.backends.build_context import COPY, DOCKERFILE, context_of, prepare_context
from lab.backends.names import AUTO
from lab.backends.rendered_file import write
from lab.base.converters import text
from lab.base.errors import InputError
from lab.base.files import check_output
from lab.base.log import LOG
from lab.base.options import Flag, Switch, verb
from lab.base.shipped import CLONE, SHIPPED, files_of
from lab.cluster.config import Cluster, parse_cluster
from lab.cluster.config.schema import FILE as SCHEMA
from lab.cluster.gpu import chosen_host
from lab.cluster.placement.config_generator import describe_host, generate, name_from
from lab.cluster.placement.place import place
from lab.cluster.project import DEFAULT_CLUSTER, SCRIPTS, AnyPath, project_around
from lab.protocol.experiments.experiment import misfit
from lab.protocol.experiments.registry import EXPERIMENTS
from lab.verbs.common_options import HostGpus
from lab.verbs.printing import Note, Shown, prints

PARTS: Final = (DOCKERFILE, "data/README.md", SCRIPTS)
"""The shipped files that a project has beside its config."""

COURSE: Final = SHIPPED / "docs/how-to/course"
"""The directory with the files of the example course."""

_COURSE_PARTS: Final = ("experiments.yaml", "course", "lessons")

_GITIGNORE: Final = """\
# What lab writes for this host.
/.lab/
/runs/
compose.yaml
/cluster.sbatch
/cluster.k8s.yaml
/slurm-*
*.lab.tar.gz

# Of a class: keys, pages with passwords, and archives of the students' work.
*.pem
*-handouts.html
*.zip

__pycache__/
.ipynb_checkpoints/
"""


@dataclass(frozen=True, slots=True, repr=False)
class Initialized(Shown):
    """A project that was written.

    Attributes:
        config: The text of its config.
        written: The files and directories that were written, the config first; with `-`: none.
        kept: Those that differ from what lab writes, and stay as they are.
        notes: What was written, and what comes next.
    """

    config: str
    written: Sequence[str] = ()
    kept: Sequence[str] = ()
    notes: Sequence[str] = ()

    def _shown(self) -> Iterable[str]:
        return map(Note, self.notes) if self.notes else [self.config.removesuffix("\n")]


@verb
def init(
    *,
    gpus: HostGpus = AUTO,
    output: Annotated[AnyPath, Flag("the file to write, or - for stdout", text, shows="FILE")] = (
        DEFAULT_CLUSTER
    ),
    force: Annotated[bool, Switch("replace an existing file")] = False,
    course: Annotated[bool, Switch("also write an example course")] = False,
) -> Initialized:
    """Write a project: a config for this host or another one, the programs and a Dockerfile."""
    path = Path(DEFAULT_CLUSTER if output == "-" else output)
    root = _own_root(path)
    if course and (output == "-" or root is None):
        problem = f"--course: {output} is not in one of your projects"
        raise InputError(problem, "run `lab init --course` in an empty directory")
    if course:
        _check_course(root or Path())
    if course and path.is_file() and not force:
        return _with_files(
            Initialized(path.read_text("utf-8"), kept=[str(path)]), root, course=True
        )
    if output != "-":
        _check_free(path, force=force)
    inventory = chosen_host(gpus)
    for notice in inventory.notices:
        LOG.info(notice)
    name = name_from(path.absolute().parent.name)
    config, layout = generate(inventory, name, schema=_schema(path))
    # The generated file must pass the same checks as a file that a user writes.
    cluster = parse_cluster(config.encode(), str(path))
    place(cluster, inventory)
    if output == "-":
        return Initialized(config)
    write(path, config)
    host = "this host" if isinstance(gpus, str) else "that host"
    notes = [f"{host} has {describe_host(inventory)}", f"wrote {output}: {name}, {layout}"]
    made = _with_files(Initialized(config, [str(path)], notes=notes), root, course=course)
    then = "" if course else _next_step(path, cluster, elsewhere=not isinstance(gpus, str))
    return replace(made, notes=[*made.notes, then] if then else made.notes)


def _check_course(root: Path) -> None:
    """Check that each file of the example course can be written, or is there already.

    Raises:
        InputError: One cannot.
    """
    for name, source in files_of(_COURSE_PARTS, COURSE):
        target = root / name
        there = [each for each in (target, target.parent) if os.path.lexists(each)]
        is_free = not there or (there[0] == target.parent and target.parent.is_dir())
        if not is_free and not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            raise InputError(
                f"--course: {name} already exists, or cannot be created",
                "run the command in another directory, and copy what you need from there",
            )


def _check_free(path: Path, *, force: bool) -> None:
    check_output("--output", path, lambda _begin: True, force=force)
    if path.name == DEFAULT_CLUSTER and path.is_fifo():
        raise InputError(f"{path} is a pipe", "remove it, or name a file with --output")
    if (path.is_file() or path.is_symlink()) and not force:
        raise InputError(
            f"{path} already exists",
            "replace it with --force, or name another file with --output",
        )


def _schema(path: Path) -> str | None:
    """Return the relative path of the schema for editors; None outside of a clone."""
    folder = path.absolute().parent
    if CLONE is None or not folder.is_relative_to(CLONE):
        return None
    return Path(os.path.relpath(SCHEMA, folder)).as_posix()


def _own_root(config: Path) -> Path | None:
    """Return the project of a config, in which lab may write files; None: there is none.

    A clone has all files. A config that is written through a link, such as /dev/stdout, belongs to
    no project.
    """
    folder = config.absolute().parent.resolve()
    if config.resolve().parent != folder:
        return None
    folder = project_around(config) or folder
    return folder if context_of(folder).is_copy else None


def _with_files(made: Initialized, root: Path | None, *, course: bool) -> Initialized:
    """Write what a project lacks, and say what was written, and what exists but differs.

    These are programs, the Dockerfile and the image's sources. It replaces no file.
    """
    if root is None:
        return made
    written: list[str] = []
    kept = [*made.kept]
    ignore = root / ".gitignore"
    if os.path.lexists(ignore):
        kept.append(ignore.name)
    else:
        ignore.write_text(_GITIGNORE, encoding="utf-8")
        written.append(ignore.name)
    parts = _COURSE_PARTS if course else ()
    for name, source in (*files_of(PARTS), *files_of(parts, COURSE)):
        target = root / name
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            written.append(name if Path(name).parent.name != SCRIPTS else f"{SCRIPTS}/")
        elif not (target.is_file() and filecmp.cmp(source, target, shallow=False)):
            kept.append(name)
    prepare_context(root)
    written = [*dict.fromkeys(written)]
    notes = [
        *made.notes,
        f"wrote {', '.join(written)}, and {COPY}/ for the image" if written else "",
        f"kept existing files: {', '.join(kept)}" if kept else "",
        "`lab check` lists its lessons; `lab check points` is a small one" if course else "",
    ]
    return replace(made, written=[*made.written, *written], kept=kept, notes=[*filter(None, notes)])


def _next_step(path: Path, cluster: Cluster, *, elsewhere: bool) -> str:
    """Return what to do now; "" if no experiment fits."""
    named = "" if str(path) == DEFAULT_CLUSTER else f" --cluster {shlex.quote(str(path))}"
    counts = {job: len(each.on) for job, each in cluster.jobs.items()}
    fitting = (name for name, each in EXPERIMENTS.items() if not misfit(each, counts))
    if elsewhere:
        return f"render it for that host with `lab render --gpus index{named}`"
    name = next(fitting, None)
    return f"train with `lab run {name}{named}`" if name else ""


command = prints(init)
