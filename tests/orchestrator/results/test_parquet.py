"""Results as a Parquet file: the rows of the CSV file, with types that no missing figure changes."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest

from orchestrator.errors import UsageError
from orchestrator.results.export import flat_results, results_parquet
from tests.needs import absent
from tests.orchestrator.site.records import demo_farm

if importlib.util.find_spec("pyarrow") is None:
    absent("the extra parquet is not installed")

from pyarrow import parquet

FARM = demo_farm()
CELLS = [cell for own in FARM.cell_lists.values() for cell in own]


def test_a_parquet_file_has_the_rows_of_a_data_frame() -> None:
    assert parquet.read_table(io.BytesIO(results_parquet(CELLS))).to_pylist() == flat_results(CELLS)


def test_the_types_of_columns_are_those_of_a_file_in_which_everything_is_missing() -> None:
    whole = parquet.read_schema(io.BytesIO(results_parquet(CELLS)))
    unmeasured = [cell for cell in CELLS if cell.measurement is None]
    assert unmeasured
    for cells in (unmeasured, []):
        assert parquet.read_schema(io.BytesIO(results_parquet(cells))).equals(whole)


def test_without_its_library_the_form_is_refused_with_the_line_that_installs_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"Parquet needs pyarrow: .* pip install .*parquet"):
        results_parquet(CELLS)
