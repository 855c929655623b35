"""The notebooks in this directory use the module of the same name in the directory above."""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
del sys.modules[__name__]
import_module(__name__)  # It is what `from common import …` reads.
