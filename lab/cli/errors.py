"""Turn errors into one line and an exit code. Only this module catches every exception."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from shutil import get_terminal_size

from lab.errors import ConfigError, LabError
from lab.extras import named_extras
from lab.log import LOG
from lab.shipped import install_command
from lab.signals import EXIT_INTERRUPTED
from lab.text import short


def exit_code_of(action: Callable[[], None], *, debug: bool) -> int:
    """Run a command, and print an error if it fails.

    Args:
        action: The command.
        debug: Print the traceback of the error.

    Returns:
        The exit code.
    """
    try:
        with named_extras():
            action()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `lab runs | head -1`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        if debug:
            traceback.print_exc()
        LOG.error("error: interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the outermost frame handles every error)
        if debug:
            traceback.print_exc()
        return _print_error(error)
    return 0


def _print_error(error: Exception) -> int:
    if isinstance(error, ConfigError):
        for problem in error.problems:
            LOG.error(problem)
        return error.exit_code
    if isinstance(error, LabError):
        line = f"error: {error}"
        if error.fix and sys.stderr.isatty() and len(line) > get_terminal_size().columns:
            LOG.error(f"error: {error.what}")
            line = f"  {error.fix}"
        LOG.error(line)
        return error.exit_code
    if isinstance(error, ModuleNotFoundError) and _is_foreign(error.name):
        LOG.error(
            f"error: this Python has no package {error.name};"
            f" install what lab needs with `{install_command()}`"
        )
        return 1
    if isinstance(error, OSError) and error.filename is not None:
        LOG.error(f"error: {short(str(error.filename))}: {_lower(error.strerror)}; {_fix(error)}")
        return 1
    if isinstance(error, OSError) and error.errno == errno.EBADF:
        LOG.error("error: stdout is closed; redirect it to a file, or to /dev/null")
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        LOG.error(f"error: the disk is full; {_fix(error)}")
    else:
        LOG.error(f"error: internal: {type(error).__name__}: {error}; run it again with --debug")
    return 1


def _is_foreign(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] not in {"lab", *sys.stdlib_module_names}


def _lower(text: str | None) -> str:
    text = text or "cannot be used"
    return text[:1].lower() + text[1:]


def _fix(error: OSError) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return "free some space and run the command again; saved data is intact"
    return "check the path and its permissions"
