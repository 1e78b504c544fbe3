"""The events of a campaign as a terminal shows them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.db.results import records
from orchestrator.db.scheduling import ingest
from orchestrator.farm.submit.campaign_events import Seen, look
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import cells, dispatch, result, stock


@pytest.mark.parametrize("most", [None, 1, 2])
def test_cells_that_end_together_have_a_number_each(database, most):
    ref = stock(database, asked(("a", "b", "c"), {"cpu": {}}))
    for cell in cells(database):
        job = dispatch(database, cell.cell_id)
        with database.write() as session:
            ingest.apply(session, result(job), datetime.now(UTC))
    with database.read() as session:
        number = records.find_campaign(session, ref).no
    seen, told, more = Seen(0), [], True
    while more:
        news = look(database, number, seen, most)
        told += [(event.done, event.total) for event in news.events if event.kind == "finished"]
        seen, more = news.seen, news.more
    assert told == [(1, 3), (2, 3), (3, 3)]
