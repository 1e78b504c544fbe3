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
    (change,) = found["changes"]
    assert (change["key"][:2], change["ratio"]["blocks"]) == (["good", "cpu"], 5)
    assert found["paired"] is True
    (left_out,) = found["rerun"]["left_out"]
    assert left_out["key"][:2] == ["good", "litert"]
    assert "A and B have the same settings of litert" in left_out["why"]
    (campaign,) = found["rerun"]["campaigns"]
    table = shell.farm("results", campaign)
    assert "cpu-a@host-cpu" in table.out
    assert "cpu-b@host-cpu" in table.out
    again = shell.farm("compare", "monday", "monday", "--rerun")
    assert again.code == 2
    assert "--rerun: no cell can be measured anew" in again.err
