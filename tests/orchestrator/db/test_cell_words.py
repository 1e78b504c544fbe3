"""A cell by words of its names, and a campaign by a part of its name."""

from __future__ import annotations

import pytest

from orchestrator.db.results import records
from orchestrator.db.results.cell_words import find_cell_by
from orchestrator.errors import UsageError
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import cells, stock

DELEGATES = {"cpu": {}, "gpu": {}, "gpu-fp16": {"kind": "gpu", "precision": "fp16"}}


@pytest.fixture
def named(database):
    """Return a look-up of the cell that words find, in two campaigns; the second one is newer."""
    stock(database, asked(("iris_v1", "face_short"), DELEGATES, name="monday three"))
    stock(database, asked(("iris_v1",), DELEGATES, name="tuesday three"))
    known = {cell.cell_id: cell for cell in cells(database)}

    def find(*words: str) -> tuple[str, str, int]:
        with database.read() as session:
            cell = known[find_cell_by(session, " ".join(words))]
        return cell.model, cell.delegate, cell.campaign_no

    return find


def test_words_of_its_names_find_a_cell_of_the_newest_campaign_that_has_it(named, database):
    assert named("iris", "gpu") == ("iris_v1", "gpu", 2), "a whole name is no part of another"
    assert named("IRIS", "fp16") == ("iris_v1", "gpu-fp16", 2)
    assert named("iris", "cpu", "monday") == ("iris_v1", "cpu", 1)
    assert named("face", "gpu") == ("face_short", "gpu", 1)
    first = cells(database)[0]
    assert named(first.cell_id[:8]) == (first.model, first.delegate, 1)


def test_a_word_of_a_model_is_not_one_of_the_campaign_that_is_called_after_it(named, database):
    stock(database, asked(("kws_ref", "vww"), DELEGATES, name="kws_ref+1"))
    known = {cell.cell_id: cell.model for cell in cells(database)}
    with database.read() as session:
        assert known[find_cell_by(session, "kws gpu")] == "kws_ref"
        assert known[find_cell_by(session, "vww kws_ref+1 gpu")] == "vww"


def test_words_that_fit_several_cells_list_them(named):
    with pytest.raises(UsageError, match="'iris' fits 3 cells; add a word, or give an id:") as error:
        named("iris")
    listed = str(error.value).splitlines()[1:]
    assert [line.split()[2].partition("@")[0] for line in listed] == ["cpu", "gpu", "gpu-fp16"]
    assert all("in tuesday three" in line for line in listed)


def test_words_that_fit_nothing_say_what_a_cell_is_named_by(named):
    with pytest.raises(UsageError, match="no cell 'iris tpu': give the beginning of its id, or words"):
        named("iris", "tpu")
    with pytest.raises(UsageError, match="no cell '%'"):
        named("%")


def test_a_campaign_is_named_by_a_part_that_no_other_has(database):
    for name in ("monday three", "tuesday three", "monday three"):
        stock(database, asked((name[:3],), name=name))
    with database.read() as session:
        assert records.find_campaign(session, "TUES").name == "tuesday three"
        assert records.find_campaign(session, "mond").no == 3, "the newest of that name"
        with pytest.raises(UsageError, match="'three' is a part of 2 campaigns' names: 'monday three', 'tue"):
            records.find_campaign(session, "three")
        with pytest.raises(UsageError, match="no campaign 'wednesday'"):
            records.find_campaign(session, "wednesday")
