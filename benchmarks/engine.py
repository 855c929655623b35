"""A Docker engine with the image of this very state of the sources."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.measure import say
from benchmarks.trainings import CLUSTER, ROOT, Workplace
from lab.render.compose import BASE_IMAGE
from tests import engine as engines


@contextlib.contextmanager
def ready(place: Workplace) -> Iterator[str]:
    """Have an engine and the image as long as the block lasts.

    The engine is the one that answers; where LAB_TEST_ENGINE=1 asks for it, a private one.

    Yields:
        Why there is none; "" where all is ready.
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
        say("the image is built, as far as it is not there")
        done = subprocess.run(
            [sys.executable, "-m", "lab", "build", "--gpus", "none", "--cluster", str(CLUSTER)],
            env=place.environ,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        said = done.stderr.strip().splitlines()
        yield "" if done.returncode == 0 else f"the image was not built: {said[-1] if said else ''}"
    place.environ.clear()
    place.environ.update(before)
