"""JupyterHub's configuration of one class; `lab class up` starts JupyterHub with it."""

from __future__ import annotations

import os
from typing import Any

from lab.classroom.hub import configure
from lab.classroom.state import ClassDir
from lab.variables import LAB_CLASS

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  (JupyterHub defines it)
configure(c, ClassDir(os.environ[LAB_CLASS]))
