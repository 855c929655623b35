"""`lab schema`.

Examples:
    # print the schema
    lab schema
    # write it to a file, for an editor
    lab schema > cluster.schema.json
"""

from __future__ import annotations

from lab.config.schema import json_schema
from lab.console import print_json


def command() -> None:
    """Print the JSON Schema of the cluster config."""
    print_json(json_schema())
