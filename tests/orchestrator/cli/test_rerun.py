"""`farm compare --rerun` measures two campaigns' settings by turns, and says what it leaves out."""

from __future__ import annotations

import pytest

from tests.orchestrator.cli.conftest import Shell
from tests.orchestrator.cli.models import unary_model

CAMPAIGN = """\
version: 1
campaign: {name}
defaults:
  measure: {{warmup: {{runs: 1, min_seconds: 0}}, blocks: 1, rounds: 3, slice: {{seconds: 0.01}}}}
models:
  - {{id: good, source: good.tflite}}
delegates:
  cpu: {{kind: cpu, threads: {threads}}}
  litert: {{kind: litert, threads: 1}}
"""


@pytest.mark.exhaustive
def test_two_campaigns_are_measured_anew_by_blocks_and_have_a_paired_ratio(shell: Shell) -> None:
    shell.write("good.tflite", unary_model())
    for name, threads in (("monday", 1), ("tuesday", 2)):
        shell.write("models.yaml", CAMPAIGN.format(name=name, threads=threads))
        assert shell.farm("submit", "models.yaml").code == 0
    found = shell.farm("compare", "monday", "tuesday", "--rerun", "--json").json()
    changes = {change["key"][1]: change for change in found["changes"]}
    assert changes.keys() == {"cpu", "litert"}
    assert all(change["ratio"]["blocks"] >= 5 for change in changes.values())
    assert found["paired"] is True
    assert found["rerun"]["left_out"] == []
    first, _ = found["rerun"]["campaigns"]
    table = shell.farm("results", first)
    assert "cpu-a (threads: 1)" in table.out
    assert "cpu-b (threads: 2)" in table.out
