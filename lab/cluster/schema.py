"""The JSON Schema of the description, for editors; generated from the model.

`make golden` writes the shipped file anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from lab.cluster.model import Cluster

FILE = Path(__file__).with_name("cluster.schema.json")
"""The schema as it is shipped; descriptions name it in their first line."""


class _Schema(GenerateJsonSchema):
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # None means that a key is left out; a key that stands there has a value.
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = super().default_schema(schema)
        return {key: value for key, value in inner.items() if (key, value) != ("default", None)}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        # A name that does not match is refused, not merely left unchecked.
        return {**super().dict_schema(schema), "additionalProperties": False}

    def field_title_should_be_set(self, schema: object) -> bool:
        # The titles would only repeat the keys.
        return False


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a cluster description."""
    schema = Cluster.model_json_schema(schema_generator=_Schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Cluster description of lab",
    }


def schema_text() -> str:
    """The text of the file that is shipped."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
