"""Results and campaigns as files: the forms that docs/results-format.md promises."""

from __future__ import annotations

import json
import re

from orchestrator.results.export import campaign_json
from tests.needs import REPOSITORY
from tests.orchestrator.site.records import demo_farm

FORMAT = (REPOSITORY / "docs" / "results-format.md").read_text(encoding="utf-8")


def documented(heading: str) -> list[str]:
    """Return the fields of the first table below a heading, in its order."""
    section = FORMAT.partition(f"## {heading}\n")[2]
    (table, *_) = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_a_campaign_has_exactly_the_documented_fields() -> None:
    for record in demo_farm().campaign_list:
        found = campaign_json(record)
        assert list(found) == documented("A campaign")
        assert json.loads(json.dumps(found)) == found
