"""The demo's promises, checked on a real campaign of some of its models, and exhaustively on all."""

from __future__ import annotations

import json

import pytest

from agent.attempt import runlog
from tests.end_to_end.conftest import FEW, QUANTISED
from tests.runtime.demo_models import ENTRIES

DELEGATES = ("cpu", "gpu", "litert")
INT8 = "torchvision_mobilenet_v2__static_int8"
KEYS = {
    "campaign", "model", "delegate", "device", "level", "status", "reason", "delegation", "latency_ms",
    "samples", "memory_bytes", "accuracy", "labelled", "environment_id", "cell_id", "campaign_id",
    "model_sha256", "device_name", "threads", "finished_at", "reused_from", "flags", "conditions_id",
    "quality", "grade", "half_width", "allowance", "grade_reason", "p50_grade", "ratio", "variation",
    "again", "energy", "imported", "init_ms", "installed", "device_ms", "sustained", "throughput", "advice",
    "steps", "cpu_ms", "pipeline", "transfer", "caches",
}  # fmt: skip


def test_the_campaign_ends_without_a_failure(campaign):
    assert campaign.exit_code == 0, campaign.output
    assert "Traceback" not in campaign.output


@pytest.mark.parametrize(
    ("model", "delegate"),
    [
        *((model, name) for model in FEW for name in ("cpu", "litert")),
        *((QUANTISED, name) for name in DELEGATES),
    ],
)
def test_a_cell_is_measured_and_right(campaign, model, delegate):
    check_cell(campaign, model, delegate)


@pytest.mark.exhaustive
@pytest.mark.parametrize("model", ENTRIES)
@pytest.mark.parametrize("delegate", DELEGATES)
def test_every_cell_of_the_demo_is_measured_and_right(demo, model, delegate):
    check_cell(demo, model, delegate)


@pytest.mark.exhaustive
def test_the_demos_row_in_bf16_is_measured_or_says_why_it_is_not(demo):
    cell = demo.cell("torchvision_mobilenet_v2", "gpu-bf16")
    if cell["status"] == "unsupported":
        assert cell["reason"]["code"] == "unsupported_precision"
        assert "precision 'bf16': " in cell["reason"]["text"]
        return
    check_cell(demo, "torchvision_mobilenet_v2", "gpu-bf16")


def check_cell(campaign, model, delegate):
    cell = campaign.cell(model, delegate)
    assert set(cell) == KEYS
    if (model, delegate) == (INT8, "gpu") and cell["status"] == "unsupported":
        assert "int8" in cell["reason"]["text"].lower()
        return
    assert cell["status"] == "done", cell["reason"]
    assert cell["accuracy"]["verdict"] == "pass", cell["accuracy"]
    assert cell["samples"] >= 12
    assert cell["latency_ms"]["p50"] > 0
    assert cell["memory_bytes"]["peak"] > 0
    assert cell["memory_bytes"]["steady"] > 0
    assert cell["installed"]["bytes"] > 0
    for cache, init in (("cold", "init"), ("warm", "init_warm")):
        stages = dict(cell["init_ms"][cache])
        assert stages.pop("n") >= 1
        assert sum(ms or 0.0 for ms in stages.values()) == pytest.approx(cell["latency_ms"][init])
        assert {name for name, ms in stages.items() if ms is None} == set(cell["init_ms"]["missing"])
    assert (cell["memory_bytes"]["device"] is None) == (delegate != "gpu")
    told = {name: cell["device_ms"][name] for name in ("busy", "queue_delay")}
    assert {name for name, ms in told.items() if ms is None} == set(cell["device_ms"]["missing"])
    assert delegate == "gpu" or set(told.values()) == {None}
    copied = dict(cell["transfer"])
    assert {name for name, value in copied.items() if value is None} == set(copied.pop("missing"))
    assert (copied["in_bytes"] is None) == (copied["p50_bound_ms"] is None) == (delegate != "gpu")
    assert cell["caches"]["bytes"] >= (10_000 if delegate == "gpu" else 0)
    assert (cell["init_ms"]["cold"]["parse"] is None) == (delegate == "litert")
    if delegate == "gpu":
        assert cell["delegation"]["status"] == "full", cell["delegation"]["fallbacks"]
        assert cell["delegation"]["delegated_ops"] == cell["delegation"]["total_ops"]
    if delegate == "litert":
        assert cell["delegation"] is None


def test_percentiles_below_their_floor_are_null_with_the_reason(campaign):
    latency = campaign.cell("face_landmark", "cpu")["latency_ms"]
    assert latency["p99"] is None
    assert "662" in latency["missing"]["p99"]
    assert latency["ci95"] is None
    assert "process" in latency["missing"]["ci95"]


def test_lacking_operator_is_named_and_nothing_fails(campaign):
    for delegate in DELEGATES:
        cell = campaign.cell("lacking", delegate)
        assert cell["status"] == "unsupported"
        assert "Blur" in cell["reason"]["text"]
        assert cell["memory_bytes"] is None


def test_fallback_share_and_reason_are_visible_in_the_row(campaign):
    delegation = campaign.cell("partial", "gpu")["delegation"]
    assert delegation["status"] == "partial"
    assert 0 < delegation["delegated_ops"] < delegation["total_ops"] == 4
    assert {f["index"]: f["op"] for f in delegation["fallbacks"]}[2] == "REVERSE_SEQUENCE"
    assert all(fallback["reason"] for fallback in delegation["fallbacks"])
    assert len(delegation["fallbacks"]) == 4 - delegation["delegated_ops"]


@pytest.mark.parametrize("delegate", DELEGATES)
def test_result_carries_its_evidence(campaign, delegate):
    cell = campaign.cell(QUANTISED, delegate)
    shown = json.loads(campaign.farm("show", cell["cell_id"], "--json").stdout)
    assert shown["result"] == cell
    assert {"threads", "cpus", "precision", "plan"} <= set(shown["settings"])
    assert {"cpu", "kernel", "runtime", "python"} <= set(shown["environment"])
    assert isinstance(shown["warnings"], list)
    assert shown["facts"]["hostname"]
    processes = shown["processes"]
    kept = (one["runs"] for p in processes for one in p["slices"] if one["kept"])
    assert sum(kept) == cell["samples"]
    assert processes[0]["cache"] == "cold"
    assert all("clocks_mhz" in p["facts"] for p in processes)
    if delegate == "gpu":
        assert cell["delegation"]["fallbacks"] == []
        assert {"device", "driver", "schedule"} <= set(shown["settings"])
        assert shown["environment"]["opencl_driver"] == shown["settings"]["driver"]


def test_no_two_attempts_of_the_host_overlapped(campaign):
    lives = runlog.intervals(runlog.read(campaign.home / "agent" / "runs.log"))
    measured = [life for life in lives if life.what == "measure"]
    finished = [cell for cell in campaign.results if cell["status"] == "done"]
    assert len(measured) >= 2 * len(finished) > 0, "each has a cold process and a timed one"
    assert all(life.end_ns is not None for life in lives)
    assert len({life.exclusion_group for life in lives}) >= 1
    assert runlog.overlaps(lives) == []


def test_second_submit_reuses_every_finished_cell(campaign):
    again = campaign.farm("submit", str(campaign.manifest))
    assert again.returncode == 0, again.stderr
    assert "reus" in again.stdout
    lives = runlog.intervals(runlog.read(campaign.home / "agent" / "runs.log"))
    dry = campaign.farm("submit", str(campaign.manifest), "--dry-run", "--json")
    planned = json.loads(dry.stdout)
    others = [(cell["model"], cell["delegate"]) for cell in planned if cell["action"] != "reuse"]
    assert others == [(model, "gpu") for model in FEW], "which a rule leaves out"
    assert runlog.intervals(runlog.read(campaign.home / "agent" / "runs.log")) == lives
