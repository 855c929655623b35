"""The packages that a program imports when it starts, and those that its tasks lack."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.programs.python_source import imported_names, module_files

_OTHER_NAMES: Final = {
    "PIL": "pillow", "cv2": "opencv-python-headless", "hydra": "hydra-core", "absl": "absl-py",
    "skimage": "scikit-image", "sklearn": "scikit-learn", "yaml": "pyyaml",
}  # fmt: skip
"""Module to package, where the package has another name."""

_WELL_KNOWN: Final = {
    *_OTHER_NAMES,
    *("accelerate", "boto3", "datasets", "einops", "flax", "keras", "lightning", "matplotlib"),
    *("omegaconf", "optax", "pandas", "pytorch_lightning", "scipy", "tensorboard", "timm"),
    *("tensorflow_datasets", "torchaudio", "torchvision", "tqdm", "transformers", "wandb"),
}
"""Modules that belong to a package of their name, or of the other name."""

_PROBE: Final = """
import sys
from importlib.util import find_spec
sys.path.insert(0, sys.argv[1])
print(*(name for name in sys.argv[2:] if find_spec(name) is None))
"""


def first_imports(
    folder: Path, trees: Mapping[Path, ast.Module], programs: Iterable[Path]
) -> list[str]:
    """Return the modules that a program imports whatever happens, such as `horovod.torch`.

    These are the imports at the top level of the program, and of its own modules that it imports
    there: not those in a function, below a test, or in a `try`. The user's own modules are none of
    them. A program that changes where Python looks for modules has none.

    Args:
        folder: The directory of the programs.
        trees: The syntax trees of the programs and of the modules that they import.
        programs: The files that the tasks start.
    """
    files, modules = [*programs], dict[str, None]()
    for file in files:
        if any(ast.unparse(node) == "sys.path" for node in ast.walk(trees[file])):
            return []
        imports = (ast.Import, ast.ImportFrom)
        top = ast.Module([node for node in trees[file].body if isinstance(node, imports)], [])
        for name in filter(None, imported_names(file, top)):
            own = [*module_files(folder, name)]
            files += [path for path in own if path not in files]
            if not own:
                modules[".".join(name)] = None
    return [*modules]


def packages_of(modules: Iterable[str]) -> list[str]:
    """Return the top-level modules that imports need, without those of Python itself."""
    needed = {"torch.utils.tensorboard": "tensorboard"}
    tops = (needed.get(name, name.partition(".")[0]) for name in modules)
    return [top for top in dict.fromkeys(tops) if top not in sys.stdlib_module_names]


def missing_here(
    python: str, environ: Mapping[str, str], folder: Path, names: Sequence[str]
) -> list[str]:
    """Return the top-level modules that a Python does not find; it imports none of them.

    Args:
        python: The path of the Python.
        environ: Its environment variables.
        folder: The program's directory.
        names: The modules.
    """
    command = [python, "-P", "-c", _PROBE, str(folder), *names]
    probed = subprocess.run(command, env=dict(environ), capture_output=True, text=True, check=False)
    return probed.stdout.split()


def missing_in_image(packages: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return the well-known modules whose packages an image lacks.

    Args:
        packages: The packages of the image.
        names: The modules.
    """
    present = {name.replace("-", "_") for name in packages}
    known = (name for name in names if name in _WELL_KNOWN)
    return [name for name in known if package_of(name).replace("-", "_") not in present]


def package_of(module: str) -> str:
    """Return the package that pip installs for a module."""
    return _OTHER_NAMES.get(module, module)
