"""A Docker engine with an image of the present sources."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.trainings import CLUSTER, ROOT, Workplace, print_progress
from lab.backends.compose.render import BASE_IMAGE
from tests.support import engine as engines


@contextlib.contextmanager
def ready(place: Workplace) -> Iterator[str]:
    """Provide an engine and the image during the block.

    The engine is the one that answers, or a private one with LAB_TEST_ENGINE=1.

    Yields:
        The reason why there is none; "" if the engine and the image are ready.
    """
    before = dict(place.environ)
    with contextlib.ExitStack() as stack:
        try:
            found = stack.enter_context(engines.an_engine())
        except engines.NoEngine as reason:
            yield str(reason)
            return
        for name in ("DOCKER_HOST", "DOCKER_CONFIG", "PATH"):
            if name in found.environment:
                place.environ[name] = found.environment[name]
        if "LAB_BASE_IMAGE" not in before and not engines.can_pull(BASE_IMAGE, found.environment):
            place.environ["LAB_BASE_IMAGE"] = engines.make_base_image(found.environment)
        print_progress("building the image")
        done = subprocess.run(
            [sys.executable, "-m", "lab", "build", "--gpus", "none", "--cluster", str(CLUSTER)],
            env=place.environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else ""
        yield "" if done.returncode == 0 else f"the image was not built: {reason}"
    place.environ.clear()
    place.environ.update(before)
