"""The JSON schema of a `models.yaml`, by which editors complete its keys and mark mistakes."""

from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from orchestrator.manifest.schema import Manifest
from orchestrator.manifest.values import JsonSchema

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def manifest_schema() -> JsonSchema:
    """Return the JSON schema of a `models.yaml`, with the delegates that are installed here."""
    form = Manifest.model_json_schema(schema_generator=_OfWrittenKeys)
    header = {"$schema": _DIALECT, "title": "models.yaml of the delegate farm"}
    del form["description"]
    inlined: JsonSchema = _inlined(form, form["$defs"])
    return header | inlined


class _OfWrittenKeys(GenerateJsonSchema):
    """Describe what may be written: a key that is left out has no null, and a default is no example."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchema:
        """Leave out null, which no file writes."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchema:
        """Leave out the default."""
        return self.generate_inner(schema["schema"])

    def sort(self, value: JsonSchema, parent_key: str | None = None) -> JsonSchema:  # noqa: ARG002
        """Keep the order of the classes' fields, in which people read them."""
        return value

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchema:
        """Describe a table: free keys, and values of one form."""
        names = self.generate_inner(schema["keys_schema"])
        form = {"type": "object", "additionalProperties": self.generate_inner(schema["values_schema"])}
        return form if names == {"type": "string"} else form | {"propertyNames": names}


def _inlined(form: Any, defined: JsonSchema) -> Any:
    """Return a schema in which each mapping stands where it is used, without the titles of its classes."""
    if isinstance(form, list):
        return [_inlined(one, defined) for one in form]
    if not isinstance(form, dict):
        return form
    if "$ref" in form:
        named = defined[form["$ref"].rpartition("/")[2]]
        # What stands beside a $ref belongs to the key, and takes precedence over its class's.
        form = {key: one for key, one in named.items() if key != "description"} | form
    return {
        key: _inlined(one, defined)
        for key, one in form.items()
        # A key of the file may be called `title` too; its value is a schema, and no text.
        if key not in ("$ref", "$defs") and not (key == "title" and isinstance(one, str))
    }
