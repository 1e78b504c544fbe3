"""`farm schema`: what a `models.yaml` may hold, for people and for editors."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.cli import output
from orchestrator.cli.verb import Json
from orchestrator.manifest import JsonSchema, manifest_schema


def schema(as_json: Json = False) -> int:
    """List the keys of models.yaml, or print its JSON Schema.

    With --json: the schema, with the delegates that are installed here. An editor that knows it completes
    keys and marks mistakes; for the YAML language server, write
    `# yaml-language-server: $schema=models.schema.json` into the first line of the file.

    Examples:
      farm schema
      farm schema --json > models.schema.json
    """
    found = manifest_schema()
    keys = list(_keys(found, ""))
    widest = max(len(place) for place, _ in keys)
    return output.answer(found, (f"{place:{widest}}  {about}" for place, about in keys), as_json)


def _keys(form: JsonSchema, prefix: str) -> Iterator[tuple[str, str]]:
    """Every key with its place and its sentence; `[]` stands for an item of a list, NAME for a free key."""
    for name, inner in form.get("properties", {}).items():
        if "description" in inner:
            yield f"{prefix}{name}", inner["description"]
        yield from _keys(inner, f"{prefix}{name}.")
    for choice in form.get("anyOf", ()):
        yield from _keys(choice, prefix)
    if "items" in form:
        yield from _keys(form["items"], f"{prefix[:-1]}[].")
    if isinstance(form.get("additionalProperties"), dict):
        yield from _keys(form["additionalProperties"], f"{prefix}NAME.")
