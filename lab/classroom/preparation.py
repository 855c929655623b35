"""Check and plan a class on this host, or on another one."""

from __future__ import annotations

import shutil
import ssl
import stat
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from lab.backends.build_context import prepare_context
from lab.backends.engine.client import Engine
from lab.backends.engine.info import EngineInfo, read_engine
from lab.backends.state import state_directory
from lab.classroom.config import ClassConfig, Tls, load_class
from lab.classroom.disks import unavailable_reason
from lab.classroom.planning import ClassPlan, HostFacts, plan_class
from lab.classroom.state import ClassDir, StoredClass, class_dirs
from lab.config import load_cluster
from lab.config.diagnostics import Problem, texts
from lab.config.load import read_file
from lab.errors import ConfigError, InputError, LabError
from lab.extras import check_extra, named_extras
from lab.gpu import Inventory, chosen_host
from lab.log import LOG
from lab.project import find_root
from lab.text import short

_ROOM_BYTES: Final = 10**9
"""Free bytes that seats leave to JupyterHub and the engine."""

_WIDEST_PREFIX: Final = 8
"""A route to a wider network leads out of the host, such as that of a VPN."""


def plan_from(path: Path, gpus: str | int) -> ClassPlan:
    """Read a class config with the files that it names, and plan it.

    Args:
        path: The file of the class config.
        gpus: The host: as for `lab.gpu.chosen_host`.

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
    from lab.classroom.environment import up  # noqa: PLC0415  (docker-py)

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
    from lab.classroom.image import SOURCES, ensure_image  # noqa: PLC0415  (docker-py)

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
        LOG.info(f"the disk and the engine's networks are not checked: {short(reason)}")
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
    certificate, key = short(str(tls.certificate)), short(str(tls.key))
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
