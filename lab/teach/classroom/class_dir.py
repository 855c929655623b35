"""The directory of a class: its plan, its tokens and the files of JupyterHub."""

from __future__ import annotations

import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from lab.backends.process import ProcessHandle
from lab.backends.state import state_directory
from lab.base.errors import InputError, LabError
from lab.base.files import atomic_writer
from lab.base.units import duration_s
from lab.teach.classroom import names
from lab.teach.classroom.config import TEACHER
from lab.teach.classroom.planning import ClassPlan

_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"  # without characters that look alike
_GROUPS, _GROUP_CHARS = 3, 4  # 59 bits

T = TypeVar("T")

_PRIVATE: Final = 0o077
"""The permissions that no other user may have on a file with tokens."""

_MAX_LOG_BYTES: Final = 10_000_000
_LONGEST_CLASS_S: Final = 7 * 86_400


class Tokens(msgspec.Struct, frozen=True):
    """The secrets of a class.

    Attributes:
        seats: The password of each seat, and of the teacher if there is an admin page.
        proxy: For changes of the proxy's routes.
        service: For requests of `lab` to JupyterHub.
    """

    seats: dict[str, str]
    proxy: str
    service: str


class StoredClass(msgspec.Struct, frozen=True):
    """What `lab class up` stores of a class.

    Attributes:
        plan: The plan.
        image: The name of the seats' image.
        cluster: The text of the cluster config that each seat gets.
        root: The project's directory on this host.
    """

    plan: ClassPlan
    image: str
    cluster: str
    root: str = ""


class ClassEnd(msgspec.Struct, frozen=True):
    """When the class ends, in seconds since the epoch; None without an end."""

    ends_unix: float | None


_FILES: Final[dict[type, str]] = {
    StoredClass: "class.json",
    Tokens: "tokens.json",
    ClassEnd: "time.json",
}


@dataclass(frozen=True, slots=True)
class ClassDir:
    """The directory of one class. Only its user can read it.

    Methods that read a file raise a `LabError` if it cannot be read.

    Attributes:
        name: The class.
    """

    name: str

    @property
    def path(self) -> Path:
        """The directory."""
        return state_directory() / "classes" / self.name

    @property
    def lock(self) -> Path:
        """The lock of the commands that change the class."""
        return self.path.with_suffix(".lock")

    @property
    def log(self) -> Path:
        """JupyterHub's output."""
        return self.path / "hub.log"

    @property
    def copies(self) -> Path:
        """The directory with the copies of the work of seats that were reset."""
        return self.path / "copies"

    def resetting(self, seat: str) -> Path:
        """The file that exists while a seat is reset; JupyterHub does not start such a seat."""
        return self.path / f"{seat}.resetting"

    @property
    def is_up(self) -> bool:
        """Whether JupyterHub runs."""
        return self.hub() is not None

    def create(self, stored: StoredClass) -> Tokens:
        """Write the class and new tokens.

        Raises:
            OSError: The directory cannot be written.
        """
        self.path.mkdir(parents=True, mode=0o700)
        # A page of a seat that shares the admin page's origin would act as the teacher.
        teacher = [TEACHER] if stored.plan.domain else []
        seats = (seat.name for seat in stored.plan.seats)
        tokens = Tokens(
            {name: _new_token() for name in (*teacher, *seats)},
            secrets.token_hex(32),
            secrets.token_hex(32),
        )
        self._write(tokens)
        self._write(stored)
        return tokens

    def stored(self) -> StoredClass:
        """Read the class."""
        return self._read(StoredClass)

    def tokens(self) -> Tokens:
        """Read the tokens, if no other user can read them."""
        path = self.path / _FILES[Tokens]
        if path.exists() and path.stat().st_mode & _PRIVATE:
            fix = f"run `chmod 600 {path}`; for other tokens, run `lab class down` and"
            raise LabError(f"{path}: other users can read the tokens", f"{fix} `lab class up`")
        return self._read(Tokens)

    def end(self) -> float | None:
        """Read the end of the class, in seconds since the epoch; None without an end."""
        if not (self.path / _FILES[ClassEnd]).exists():
            return None
        return self._read(ClassEnd, "set the end with `lab class time 45m`").ends_unix

    def set_end(self, ends_unix: float | None) -> None:
        """Write the end of the class, in seconds since the epoch; None without an end.

        Raises:
            OSError: The file cannot be written.
        """
        self._write(ClassEnd(ends_unix))

    def hub(self) -> ProcessHandle | None:
        """Find the process of JupyterHub by its current directory, which no container can have."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                arguments = (process / "cmdline").read_bytes().split(b"\0")
                if b"jupyterhub" in arguments and (process / "cwd").samefile(self.path):
                    return ProcessHandle.of(int(process.name))
        return None

    def bound_log(self) -> None:
        """Move JupyterHub's output to `hub.log.1` if it is large; students can make it grow.

        JupyterHub and its services append to it, so it can be emptied while they run.
        """
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > _MAX_LOG_BYTES:
                with suppress(OSError):  # the disk is full
                    shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
                os.truncate(self.log, 0)

    def _write(self, value: object) -> None:
        path = self.path / _FILES[type(value)]
        write_private(path, msgspec.json.encode(value, enc_hook=str).decode())

    def _read(self, kind: type[T], fix: str = "") -> T:
        path = self.path / _FILES[kind]
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind, dec_hook=_decode)
        except (OSError, RecursionError, ValueError, msgspec.MsgspecError) as error:
            volumes = f"`docker volume ls --filter label={names.CLASS}={self.name}`"
            fix = fix or f"the work of its seats is in the volumes of {volumes}"
            raise LabError(f"{path} cannot be read: {error}", fix) from error


def write_private(path: Path, text: str) -> None:
    """Write a text atomically to a file that only this user can read.

    Raises:
        OSError: It cannot be written.
    """
    path.touch(mode=0o600)  # a directory that is missing is reported with the file's own name
    with atomic_writer(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text.encode())


def class_dirs() -> list[ClassDir]:
    """Return all classes that are up, or partly up."""
    folder = state_directory() / "classes"
    return [ClassDir(path.name) for path in sorted(folder.glob("*/"))]


def changed_end(text: str, ends_unix: float | None, now: float) -> float | None:
    """Return the new end of a class for the countdown of its board; None for none.

    Args:
        text: `45m` from now, `+15m` later than it is or than now, or `off`.
        ends_unix: The end so far, in seconds since the epoch.
        now: The time, in seconds since the epoch.

    Raises:
        InputError: The text is something else, or there is no end to extend.
    """
    if text == "off":
        return None
    seconds = duration_s(text.removeprefix("+"))
    if seconds is None or not 1 <= seconds <= _LONGEST_CLASS_S:
        raise InputError(
            f"{text!r} is not a time from 1s to 7d",
            "use a duration such as 45m or 1h30m, +15m to extend the class, or off",
        )
    if not text.startswith("+"):
        return now + seconds
    if ends_unix is None:
        raise InputError("the class has no end to extend", "set one with `lab class time 45m`")
    return max(ends_unix, now) + seconds


def _new_token() -> str:
    """A token that a student can type: `7kd2-mw9x-4qht`."""
    groups = (secrets.SystemRandom().choices(_ALPHABET, k=_GROUP_CHARS) for _ in range(_GROUPS))
    return "-".join(map("".join, groups))


def _decode(kind: type[Any], value: Any) -> Any:  # noqa: ANN401  (msgspec's own signature)
    if kind in {IPv4Network, Path}:
        return kind(value)
    raise NotImplementedError(kind)
