"""Check and plan a class on this host, or on another one; build its image.

The image, `lab-class:cpu` or `lab-class:cuda`, is built on the tasks' image. A label of it has the
digest of what it was built from.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from lab.backends.build_context import prepare_context
from lab.backends.compose.cli import Compose
from lab.backends.compose.image_build import build_image
from lab.backends.engine.client import Engine, engine_errors
from lab.backends.engine.info import EngineInfo, read_engine
from lab.backends.run_volume import NotFound
from lab.backends.state import state_directory
from lab.base.errors import ConfigError, InputError, LabError
from lab.base.log import LOG
from lab.base.shipped import check_extra, files_of, named_extras
from lab.cluster.config import load_cluster
from lab.cluster.config.diagnostics import Problem, texts
from lab.cluster.config.load import read_file
from lab.cluster.gpu import Inventory, chosen_host
from lab.cluster.placement.plan import Plan, PlannedNode, PlannedTask
from lab.cluster.project import find_root
from lab.teach.classroom.class_dir import ClassDir, StoredClass, class_dirs
from lab.teach.classroom.config import ClassConfig, Tls, load_class
from lab.teach.classroom.disks import unavailable_reason
from lab.teach.classroom.planning import ClassPlan, HostFacts, plan_class

_ROOM_BYTES: Final = 10**9
"""Free bytes that seats leave to JupyterHub and the engine."""

_WIDEST_PREFIX: Final = 8
"""A route to a wider network leads out of the host, such as that of a VPN."""


def plan_from(path: Path, gpus: str | int) -> ClassPlan:
    """Read a class config with the files that it names, and plan it.

    Args:
        path: The file of the class config.
        gpus: The host: as for `lab.cluster.gpu.chosen_host`.

    Raises:
        InputError: There is no such file, or it cannot be read.
        ConfigError: The config is invalid, or the host has too little; the error lists all
            problems.
        LabError: The driver does not work.
    """
    config = load_class(path)
    wants_gpus = config.seat.gpus.count or config.seat.gpus.queue
    inventory = chosen_host(gpus if wants_gpus or isinstance(gpus, int) else "none")
    problems = texts(_tls_problems(config, config.tls)) if config.tls else []
    fix = "write it with `lab init`, or name another file with `cluster:`"
    try:
        cluster = load_cluster(config.cluster, fix)
        plan = plan_class(config, host_facts(inventory), cluster)
    except InputError as error:
        others = error.problems if isinstance(error, ConfigError) else [str(error)]
        raise ConfigError([*problems, *others]) from None
    if problems:
        raise ConfigError(problems)
    return plan


def boot(path: Path) -> ClassPlan:
    """Boot the class of a config; build its image if that is missing or old.

    Raises:
        InputError: The config is invalid, or the class is up.
        LabError: The extra `class` is not installed, or a part could not be started; then
            nothing is left.
    """
    from lab.teach.classroom.up_down import up  # noqa: PLC0415  (docker-py)

    config = load_class(path)
    check_extra("class")
    folder = ClassDir(config.name)
    stored = folder.stored() if folder.path.exists() else _new_class(path, config)
    up(stored)
    return stored.plan


def _new_class(path: Path, config: ClassConfig) -> StoredClass:
    """Plan a class that is booted for the first time; build its image if needed.

    Raises:
        InputError: The config is invalid.
        LabError: The engine does not answer or is Podman, or the image cannot be built.
    """
    root, engine = find_root(path), Engine()
    if engine.is_podman():
        raise LabError(
            "a class needs Docker Engine, and this engine is Podman",
            "set DOCKER_HOST to the socket of a Docker Engine; one person trains with `lab run`",
        )
    plan = plan_from(path, "auto")
    for notice in plan.notices:
        LOG.info(notice)
    sources = prepare_context(root, SOURCES)
    image = ensure_image(
        engine, gpus=bool(plan.gpu_users), cpu_runs=config.cpu_runs > 0, root=sources
    )
    text = config.cluster.read_text(encoding="utf-8")
    return StoredClass(plan, image, text, str(root))


def running_class(path: Path) -> ClassDir:
    """Return the class of a config, which must be up; without the file, the only one that is up.

    Raises:
        InputError: No class is up, or the config is invalid or names none of them.
    """
    folders = class_dirs()
    if not folders:
        raise InputError("no class is up", "start one with `lab class up`")
    if len(folders) == 1 and not path.exists():
        return folders[0]
    folder = ClassDir(load_class(path).name)
    if folder not in folders:
        names = ", ".join(other.name for other in folders)
        fix = f"name the config of {names} with --file"
        raise InputError(f"the class {folder.name!r} is not up", fix)
    return folder


def host_facts(inventory: Inventory) -> HostFacts:
    """Look up what a class can take of a host.

    Args:
        inventory: The host; if it is another one, only its GPUs are known.
    """
    if inventory.mode == "index":
        LOG.info("another host: its CPUs, memory, disk and networks are not checked")
        return HostFacts(inventory)
    networks = routes()
    unenforced: str | None = None
    free: int | None = None
    try:
        engine = read_engine()
    except (LabError, OSError) as error:
        reason = error.what if isinstance(error, LabError) else str(error)
        LOG.info(f"the disk and the engine's networks are not checked: {reason}")
    else:
        networks += engine.networks
        unenforced = _disk_unenforced(engine)
        if engine.is_local:
            where = engine.directory / "volumes" if unenforced else state_directory()
            # Seats that reserve all free space would stop JupyterHub and the engine.
            free = max(0, free_bytes(where) - _ROOM_BYTES)
    used = [network for network in dict.fromkeys(networks) if network.prefixlen >= _WIDEST_PREFIX]
    return HostFacts(inventory, free, unenforced, tuple(used))


def free_bytes(directory: Path) -> int:
    """Return the free bytes on the disk of a directory, which may not exist yet."""
    existing = (folder for folder in (directory, *directory.parents) if folder.exists())
    return shutil.disk_usage(next(existing)).free


def routes(table: Path = Path("/proc/net/route")) -> list[IPv4Network]:
    """Return the networks of this host's IPv4 routes, without the default route."""
    networks = []
    for line in table.read_text("ascii").splitlines()[1:]:
        _, destination, *_, mask = line.split()[:8]
        if prefix := int(mask, 16).bit_count():
            # The kernel prints addresses in the byte order of its memory.
            address = int.from_bytes(int(destination, 16).to_bytes(4, "little"))
            networks.append(IPv4Network((address, prefix), strict=False))
    return networks


def _disk_unenforced(engine: EngineInfo) -> str:
    """Return why the volumes of an engine cannot have limits; "" if they can."""
    if not engine.is_local:
        return "the engine runs on another host"
    if engine.kind.is_rootless:
        return "a rootless engine cannot mount a file system"
    return unavailable_reason()


def _tls_problems(config: ClassConfig, tls: Tls) -> Iterator[Problem]:
    """Yield a problem if the files cannot serve HTTPS, or if other users can read the key."""
    certificate, key = tls.certificate, tls.key
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for name, path in (("certificate", tls.certificate), ("key", tls.key)):
            read_file(path, f"name another file with `{name}:`")
        # Without a password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: "")
    except InputError as error:
        yield Problem(("tls",), str(error))
        return
    except (ssl.SSLError, ValueError):
        message = f"{certificate} and {key} are not a certificate and its key without passphrase"
        yield Problem(("tls",), f"{message}; write both as PEM")
    else:
        seats = [f"{seat}.{config.domain}" for seat in config.seats]
        if config.domain and (missing := _not_named(tls.certificate, [config.domain, *seats])):
            message = f"{certificate} is not valid for {missing[0]}"
            fix = f"get one for {config.domain} and *.{config.domain}"
            yield Problem(("tls", "certificate"), f"{message}; {fix}")
    if tls.key.stat().st_mode & stat.S_IRWXO:
        yield Problem(("tls", "key"), f"other users can read {key}; run `chmod o= {key}`")


@named_extras()
def _not_named(certificate: Path, hosts: Sequence[str]) -> list[str]:
    """Return the hosts for which a certificate is not valid."""
    from cryptography import x509  # noqa: PLC0415  (a package of the extra `class`)

    extensions = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
    try:
        alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return list(hosts)
    names = set(alternatives.get_values_for_type(x509.DNSName))
    return [host for host in hosts if names.isdisjoint({host, f"*.{host.partition('.')[2]}"})]


DIGEST: Final = "lab.class-sha256"
"""The label of the image with the digest of what it was built from."""

SOURCES: Final = (
    *("Dockerfile.class", "requirements/class-image.txt", "requirements/proxy"),
    *("lab", "scripts", "notebooks", "clusters", "docs"),
    *("benchmarks/scaling.json", "data/README.md"),
    *("cluster.yaml", "pyproject.toml", "README.md", "LICENSE"),
)
"""What the build copies into the image, relative to the project, and the Dockerfile."""

_PROJECT: Final = "lab-class"
_SERVICE: Final = "seat"
_DOING: Final = "looking for the image of the class"


def ensure_image(engine: Engine, *, gpus: bool, root: Path, cpu_runs: bool = False) -> str:
    """Build the image of a class, unless the engine has it with these sources.

    The tasks' image is built first where it is missing or has another version of lab's code.

    Args:
        engine: The engine.
        gpus: Whether seats or the queue have GPUs.
        root: The project's directory, with `Dockerfile.class`.
        cpu_runs: Whether the queue has runs without GPUs, so that it needs their image, too.

    Returns:
        The image's name.

    Raises:
        LabError: There is no engine with compose, a build fails, or the directory is not a project.
    """
    kinds = [True, False] if gpus and cpu_runs else [gpus]
    base, *_ = [build_image(_plan(gpus=kind), root=root, if_needed=True) for kind in kinds]
    name = f"{_PROJECT}:{'cuda' if gpus else 'cpu'}"
    images = engine.client().images
    with engine_errors(_DOING):
        digest = _digest(root, str(images.get(base).id))
    with suppress(NotFound), engine_errors(_DOING):
        if images.get(name).labels.get(DIGEST) == digest:
            return name
    _build(name, base, digest, root)
    return name


def _build(name: str, base: str, digest: str, root: Path) -> None:
    LOG.info(f"building {name} downloads about 230 MB: JupyterLab, Node.js and lab's packages")
    build = {
        "context": ".",
        "dockerfile": "Dockerfile.class",
        "network": "${LAB_BUILD_NETWORK:-default}",
        "args": {"IMAGE": base},
        "labels": {DIGEST: digest},
    }
    with TemporaryDirectory(prefix="lab-build-") as folder:
        file = Path(folder) / "docker-compose.yml"
        file.write_text(json.dumps({"services": {_SERVICE: {"image": name, "build": build}}}))
        Compose(_PROJECT, file, root.absolute()).build(_SERVICE)


def _plan(*, gpus: bool) -> Plan:
    """Return a plan with one task, which runs in the image that a seat's image is built on."""
    devices = ("0",) if gpus else ()
    return Plan(
        name=_PROJECT,
        mode="index" if gpus else "none",
        cluster_sha256="",
        nodes=(PlannedNode("tf1", devices),),
        tasks=(PlannedTask("worker", 0, "tf1", 2222, devices),),
    )


def _digest(root: Path, base_id: str) -> str:
    """SHA-256 of the sources' names and contents and of the tasks' image, in hexadecimal.

    Raises:
        LabError: A source is missing.
    """
    if missing := [name for name in SOURCES if not (root / name).exists()]:
        raise LabError(
            f"{missing[0]} is missing in {root}",
            "run the command in the project's directory",
        )
    whole = hashlib.sha256(base_id.encode())
    for name, path in files_of(SOURCES, root):
        whole.update(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n".encode())
    return whole.hexdigest()
