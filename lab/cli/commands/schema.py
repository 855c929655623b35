"""`lab schema`."""

from __future__ import annotations

from lab.config.schema import json_schema
from lab.console import print_json


def command() -> None:
    """Print the JSON Schema of the description."""
    print_json(json_schema())
