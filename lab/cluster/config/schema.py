"""The JSON Schema of the config, for editors; generated from the model.

`make golden` writes the shipped file again.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from lab.cluster.config.cluster import Cluster

FILE = Path(__file__).with_name("cluster.schema.json")
"""The shipped schema; config files name it in their first line."""


class _Schema(GenerateJsonSchema):
    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        # None means that a key is left out; a key in the file has a value.
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = super().default_schema(schema)
        return {key: value for key, value in inner.items() if (key, value) != ("default", None)}

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        # Without this, a name that does not match would be allowed.
        return {**super().dict_schema(schema), "additionalProperties": False}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        generated = super().model_schema(schema)
        for name, text in _attribute_docstrings(schema["cls"]).items():
            generated["properties"][name]["description"] = text
        return generated

    def field_title_should_be_set(self, schema: object) -> bool:
        # The titles would only repeat the keys.
        return False


def _attribute_docstrings(model: type) -> dict[str, str]:
    """Return the docstring of each field of a model.

    pydantic's `use_attribute_docstrings` reads them at every import; this takes a tenth of the
    time that reading a config takes.
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
    """Return the JSON Schema (draft 2020-12) of a cluster config."""
    schema = Cluster.model_json_schema(schema_generator=_Schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Cluster config of lab",
    }
