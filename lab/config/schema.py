"""The JSON Schema of the description, for editors; generated from the model.

`make golden` writes the shipped file anew.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from lab.config.model import Cluster

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

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        for name, text in _attribute_docstrings(schema["cls"]).items():
            found["properties"][name]["description"] = text
        return found

    def field_title_should_be_set(self, schema: object) -> bool:
        # The titles would only repeat the keys.
        return False


def _attribute_docstrings(model: type) -> dict[str, str]:
    """The text below each field of a model.

    pydantic reads it too (`use_attribute_docstrings`), but whenever the model is imported, and to
    look for the sources and parse them took a tenth of what it costs to read a description.
    """
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    texts = {}
    for field, text in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(docstring))),
            ):
                texts[name] = inspect.cleandoc(docstring)
    return texts


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
