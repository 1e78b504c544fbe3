"""Alert rules and dashboard name what a scrape has; each alert fires where it should, and no other one."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import needs
from tests.needs import REPOSITORY
from tests.orchestrator.monitoring.scraped import Series, scrape, work
from tests.services.endpoint import Endpoint

FILES = REPOSITORY / "ansible/roles/observability/files"
RULES = [
    rule
    for group in yaml.safe_load((FILES / "farm.rules.yml").read_text())["groups"]
    for rule in group["rules"]
]
DASHBOARD = json.loads((FILES / "farm-dashboard.json").read_text())
EXPRESSIONS = [rule["expr"] for rule in RULES] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]
SCRAPERS_OWN = {"up": {"job"}}
"""What Prometheus itself records of each scrape."""

HEALTHY = {
    'up{job="farm"}': "1x300",
    "farm_database_up": "1x300",
    "farm_broker_up": "1x300",
    "farm_scheduler_silence_seconds": "3x300",
    'farm_cells{state="queued"}': "5x300",
    'farm_cells{state="paused"}': "0x300",
    'farm_cells{state="dispatched"}': "0x300",
    'farm_cells{state="running"}': "1x300",
    'farm_agents{state="refused"}': "0x300",
    'farm_agent_silence_seconds{agent="rack-1"}': "5x300",
    'farm_agent_undelivered_seconds{agent="rack-1"}': "0x300",
    'farm_agent_dropped_results_total{agent="rack-1"}': "0x300",
    'farm_device_state{device="rack-1.gpu-0",agent="rack-1",state="busy"}': "1x300",
    'farm_recoveries_total{outcome="failed"}': "0x300",
    'farm_attempts_total{reason="completed"}': "0+2x300",
    'farm_attempts_total{reason="device_lost"}': "0x300",
    'farm_result_grades_total{grade="good"}': "0+2x300",
    'farm_result_grades_total{grade="noisy"}': "0x300",
    'farm_accuracy_verdicts_total{verdict="pass"}': "0+2x300",
    'farm_accuracy_verdicts_total{verdict="fail"}': "0x300",
    'farm_ingest_lag_seconds_bucket{le="5.0"}': "0+9x300",
    'farm_ingest_lag_seconds_bucket{le="15.0"}': "0+9x300",
    'farm_ingest_lag_seconds_bucket{le="+Inf"}': "0+9x300",
    "farm_broker_round_trip_seconds_sum": "0+0.1x300",
    "farm_broker_round_trip_seconds_count": "0+4x300",
    'farm_idle_gap_seconds_bucket{le="15.0"}': "0+9x300",
    'farm_idle_gap_seconds_bucket{le="60.0"}': "0+9x300",
    'farm_idle_gap_seconds_bucket{le="+Inf"}': "0+9x300",
    "farm_store_bytes": "10x300",
    "farm_store_budget_bytes": "100x300",
    "farm_store_free_bytes": "1000x300",
    "farm_store_floor_bytes": "10x300",
}
"""A farm at work, a value a minute, in promtool's notation: `first+step x times`."""

WRONG = {
    "FarmDown": {'up{job="farm"}': "0x300"},
    "FarmDatabaseDown": {"farm_database_up": "0x300"},
    "FarmBrokerDown": {"farm_broker_up": "0x300"},
    "FarmSchedulerSilent": {"farm_scheduler_silence_seconds": "0+60x300"},
    "FarmQueueStandsStill": {'farm_cells{state="running"}': "0x300"},
    "FarmAgentSilent": {'farm_agent_silence_seconds{agent="rack-1"}': "0+60x300"},
    "FarmAgentRefused": {'farm_agents{state="refused"}': "1x300"},
    "FarmDeviceOutOfWork": {
        'farm_device_state{device="rack-1.gpu-0",agent="rack-1",state="quarantined"}': "1x300"
    },
    "FarmRecoveryFails": {'farm_recoveries_total{outcome="failed"}': "0x220 1x80"},
    "FarmResultsUndelivered": {'farm_agent_undelivered_seconds{agent="rack-1"}': "0+60x300"},
    "FarmResultsDropped": {'farm_agent_dropped_results_total{agent="rack-1"}': "0x220 1x80"},
    "FarmAttemptsFail": {'farm_attempts_total{reason="device_lost"}': "0+1x300"},
    "FarmMeasurementsDisturbed": {'farm_result_grades_total{grade="noisy"}': "0+5x300"},
    "FarmOutputsFail": {'farm_accuracy_verdicts_total{verdict="fail"}': "0+1x300"},
    "FarmIngestLags": {'farm_ingest_lag_seconds_bucket{le="5.0"}': "0x300"},
    "FarmBrokerSlow": {"farm_broker_round_trip_seconds_sum": "0+10x300"},
    "FarmDevicesWaitForCells": {'farm_idle_gap_seconds_bucket{le="15.0"}': "0x300"},
    "FarmStoreFull": {"farm_store_bytes": "95x300"},
    "FarmDiskFull": {"farm_store_free_bytes": "15x300"},
}
"""Alert -> what is otherwise where it should fire."""

AT = "4h"
"""When it is asked which alerts fire: after the longest window of a rule and the time that it waits."""
EVERY = "5m"
"""How often the rules are evaluated until then. Every minute would take five times as long, for the same."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Series]]:
    endpoint = Endpoint(tmp_path_factory.mktemp("watched"))
    work(endpoint)
    yield scrape(endpoint)
    endpoint.close()


def test_rules_and_dashboard_name_metrics_and_labels_that_a_scrape_has(found: list[Series]) -> None:
    labels = dict(SCRAPERS_OWN)
    values: dict[str, set[str]] = {"job": {"farm"}}
    for one in found:
        labels.setdefault(one.name, set()).update(one.labels)
        for name, value in one.labels.items():
            values.setdefault(name, set()).add(value)
    optional = {"farm_store_budget_bytes"}  # of a store with a budget: test_metrics sees it
    for expression in EXPRESSIONS:
        selected = re.findall(r"\b((?:farm|process)_\w+|up\b)(?:\{([^}]*)\})?", expression)
        assert selected, expression
        for name, matchers in selected:
            assert name in labels or name in optional, f"no scrape has {name}: {expression}"
            for label, wanted in re.findall(r'(\w+)=~?"([^"]*)"', matchers):
                assert label in labels[name], f"{name} has no label {label}: {expression}"
                assert set(wanted.split("|")) <= values[label], f"never {label}={wanted}: {expression}"
        grouped = {
            label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")
        }
        assert grouped <= set(values), expression
    for rule in RULES:
        used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        names = re.findall(r"\b(farm_\w+|up\b)", rule["expr"])
        assert used <= set().union(*(labels.get(name, set()) for name in names)), rule["alert"]


def test_the_manual_says_what_each_metric_is(found: list[Series]) -> None:
    manual = (REPOSITORY / "docs/lab.md").read_text()
    base = {re.sub(r"_(total|bucket|sum|count|info)$", "", one.name) for one in found}
    ours = {name for name in base if name.startswith("farm_")}
    assert [name for name in sorted(ours) if f"`{name}`" not in manual] == []


def test_panels_have_places_of_their_own_and_the_chosen_source() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        place = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not place & taken, panel["title"]
        assert max(x for x, _ in place) < 24
        assert panel["datasource"]["uid"] == "${datasource}"
        taken |= place


def test_every_alert_fires_where_it_should_and_no_other_one(tmp_path: Path) -> None:
    assert set(WRONG) == {rule["alert"] for rule in RULES}
    assert all(rule["labels"]["severity"] and rule["annotations"]["action"] for rule in RULES)
    (tmp_path / "farm.rules.yml").write_text((FILES / "farm.rules.yml").read_text())
    cases = [(HEALTHY, [])] + [(HEALTHY | changed, [alert]) for alert, changed in WRONG.items()]
    test = {
        "rule_files": ["farm.rules.yml"],
        "evaluation_interval": EVERY,
        "tests": [_case(values, firing) for values, firing in cases],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(test))
    ran = subprocess.run(
        [needs.promtool(), "test", "rules", "test.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def _case(values: dict[str, str], firing: list[str]) -> dict[str, object]:
    return {
        "interval": "1m",
        "name": ", ".join(firing) or "a farm at work",
        "input_series": [{"series": name, "values": text} for name, text in values.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": AT,
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing],
            }
        ],
    }
