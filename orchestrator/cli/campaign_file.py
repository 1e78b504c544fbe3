"""`farm submit --check` and `--schema`: whether a campaign is valid, and what its file may hold."""

from collections.abc import Callable, Iterator

from orchestrator.cli import output
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign
from orchestrator.manifest.editors import manifest_schema
from orchestrator.manifest.problems import ManifestError
from orchestrator.manifest.values import JsonSchema
from orchestrator.results.format import counted


def report_check(asked: Callable[[], Campaign], what: str, as_json: bool) -> int:
    """Report whether what is asked for is valid. With --json its mistakes are an object, too."""
    try:
        campaign = asked()
    except UsageError as error:
        if not as_json:
            raise
        found = error.problems if isinstance(error, ManifestError) else ()
        output.emit_json({"valid": False, "error": str(error), "problems": found})
        return error.exit_code
    counts = f"{counted(len(campaign.models), 'model')} x {counted(len(campaign.delegates), 'delegate')}"
    text = f"{what}: valid; campaign {campaign.name}, {counts}, level {campaign.level}"
    return output.answer({"valid": True, "campaign": _json(campaign), "problems": []}, text, as_json)


def _json(campaign: Campaign) -> dict[str, object]:
    """Return the file's content, under the names that a stored campaign has (docs/results-format.md)."""
    return {
        "name": campaign.name,
        "level": campaign.level,
        "models": [entry.id for entry in campaign.models],
        "delegates": [entry.name for entry in campaign.delegates],
        "baseline": campaign.baseline_delegate,
        "manifest_sha256": campaign.manifest_sha256,
    }


def report_schema(as_json: bool) -> int:
    """List the keys of models.yaml; with --json, print its JSON Schema with the delegates installed here."""
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
        # Without the dot that ends the prefix: `models[].id`.
        yield from _keys(form["items"], f"{prefix[:-1]}[].")
    if isinstance(form.get("additionalProperties"), dict):
        yield from _keys(form["additionalProperties"], f"{prefix}NAME.")
