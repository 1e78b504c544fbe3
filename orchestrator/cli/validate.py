"""`farm validate`: checks a campaign file offline; stores nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import Json, settings
from orchestrator.errors import UsageError
from orchestrator.manifest import Campaign, ManifestError, load_manifest, require_samples_fit
from orchestrator.sources import check_all, problems_of


def validate(
    file: Annotated[Path, typer.Argument(help="The campaign: a models.yaml.")], as_json: Json = False
) -> int:
    """Check a campaign file and the files it names.

    Nothing is fetched, stored or measured. Mistakes are listed with line and column.
    Exit code: 0 valid, 2 not valid.

    Examples:
      farm validate models.yaml
    """
    try:
        _, lab = settings()
        sources = partial(problems_of, base_dir=file.parent, most_bytes=lab.limits.artifact_bytes)
        campaign = load_manifest(file, sources=sources)
        check_all(campaign.models, file.parent, str(file), lab.limits.artifact_bytes)
        require_samples_fit(campaign, lab)
    except UsageError as error:
        if not as_json:
            raise
        found = error.problems if isinstance(error, ManifestError) else ()
        output.emit_json({"valid": False, "error": str(error), "problems": found})
        return error.exit_code
    counts = f"{len(campaign.models)} models x {len(campaign.delegates)} delegates"
    text = f"{file}: valid; campaign {campaign.name}, {counts}, level {campaign.level}"
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
