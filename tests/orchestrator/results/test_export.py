"""Results and campaigns as files: the forms that docs/results-format.md promises."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace

from orchestrator.results.answer.headline import title_of
from orchestrator.results.export import (
    SAMPLE_COLUMNS,
    campaign_json,
    csv_columns,
    flat_results,
    results_csv,
    results_document,
    samples_csv,
)
from orchestrator.results.format import visible
from orchestrator.results.grading import last_attempt
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


def test_rows_for_a_data_frame_have_the_values_of_the_csv_file() -> None:
    farm = demo_farm()
    cells = [cell for own in farm.cell_lists.values() for cell in own]
    rows = flat_results(cells)
    assert len(rows) == len(cells)
    assert {tuple(row) for row in rows} == {csv_columns()}
    values = {type(value) for row in rows for value in row.values()}
    assert values <= {int, float, bool, str, type(None)}
    by_id = {row["cell_id"]: row for row in rows}
    for line in csv.DictReader(io.StringIO(results_csv(cells), newline="")):
        row = by_id[line["cell_id"]]
        p50 = row["latency_ms.p50"]
        assert line["latency_ms.p50"] == ("" if p50 is None else repr(p50))
        assert line["model"].removeprefix("'") == visible(row["model"])


def test_every_raw_sample_is_a_row_of_its_own() -> None:
    farm = demo_farm()
    cells = farm.cell_lists[farm.campaign_list[1].campaign_id]
    rows = list(csv.DictReader(io.StringIO("".join(samples_csv(cells, farm.samples)), newline="")))
    assert list(rows[0]) == list(SAMPLE_COLUMNS)
    for cell in cells:
        own = [row for row in rows if row["cell_id"] == cell.cell_id]
        for process in farm.samples(cell):
            timed = [r for r in own if (int(r["process"]), r["phase"]) == (process.index + 1, "timed")]
            assert [int(row["ns"]) for row in timed] == list(process.invoke_ns)
            assert {row["cache"] for row in timed} == {process.cache}
        assert len(own) == sum(len(p.warmup_ns) + len(p.invoke_ns) for p in farm.samples(cell))


def test_no_settings_of_an_agent_stop_the_results_of_all() -> None:
    """Python reads no number of more than 4300 digits: nobody's results could be written any more."""
    lists = demo_farm().cell_lists.values()
    made = next(cell for cells in lists for cell in cells if cell.measurement is not None)
    assert made.measurement is not None
    for odd in ("9" * 5000, "many", "\N{SUPERSCRIPT TWO}", ""):
        measured = made.measurement.model_copy(update={"settings": {"threads": odd, "processes": odd}})
        cell = replace(made, measurement=measured)
        assert json.loads(results_document([cell]))[0]["threads"] is None
        assert "thread" not in "".join(title_of([cell]).about)
        last_attempt(cell)
