"""The farm's benchmarks at a small size: that they run and what they report, not how fast this machine is."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests import needs


def figures(tmp_path, module, *options):
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"benchmarks.{module}", *options, "--out", str(out)]
    done = subprocess.run(command, cwd=needs.REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


@pytest.mark.parametrize("classes", ["0", "1"])
def test_the_scheduler_under_load_ends_every_cell(tmp_path, classes):
    size = ("--devices", "20", "--cells", "160", "--paced", "100", "--rate", "200", "--classes", classes)
    found = figures(tmp_path, "farm_scale", "--database", "sqlite", *size)
    assert found["cells"] == 160
    assert found["flood"]["cells_per_s"] > 0
    assert 0 < found["sql_share"] < 1
    assert found["statements_per_cell"] < 40
    whole = found["paced"]["result_received_to_next_assignment_committed_ms"]
    part = found["paced"]["result_written_to_next_assignment_committed_ms"]
    assert 0 < part["p50"] < whole["p50"]
    assert {"fsync_8k_ms", "cpus", "python"} <= set(found["machine"])


def test_devices_of_a_lab_get_their_next_cells_through_celery(tmp_path):
    needs.redis_server()
    needs.postgres_binaries()
    size = ("--devices", "4", "--agents", "2", "--cells", "12", "--seconds", "0.1")
    found = figures(tmp_path, "farm_lab", *size)
    assert found["cells"] == 12
    assert found["attempts_per_cell"] == 1.0
    assert found["idle_gap_ms"]["count"] == 8
    assert found["idle_gap_ms"]["p50"] > 0
    assert found["broker_bytes_per_cell"]["in"] > 1000
