"""`lab schema`.

Examples:
    # print it
    lab schema
    # for an editor
    lab schema > cluster.schema.json
"""

from __future__ import annotations

from lab.cli.output import print_json
from lab.config.schema import json_schema


def command() -> None:
    """Print the JSON Schema of the description."""
    print_json(json_schema())
