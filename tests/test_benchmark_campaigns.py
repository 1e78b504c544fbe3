"""The campaigns of `benchmarks/`: that they can be submitted, and what reports make of the farm's answer."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import campaign, campaign_report, cpu_report, cpu_runtime, model_kinds, sizes
from benchmarks.interleaved import measure, ratio, slices
from orchestrator.manifest.load import load_manifest, parse_manifest
from tests.needs import REPOSITORY
from tests.orchestrator.cli.models import unary_model
from tests.services.forks import run
from tests.services.known import CPU_ALONE

FILES = sorted((REPOSITORY / "benchmarks").glob("*.yaml"), key=lambda path: path.stem)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_campaign_file_is_valid_and_named_as_its_campaign(path):
    assert load_manifest(path).name == path.stem


def test_the_campaign_of_the_zoo_has_all_its_networks():
    models = [model.id for model in load_manifest(REPOSITORY / "benchmarks/zoo_vs_xnnpack.yaml").models]
    assert sorted(models) == sorted(path.stem for path in (REPOSITORY / "examples/zoo").glob("*.skel"))


def test_the_campaign_of_the_cpu_leaves_out_what_is_there_for_loading_alone():
    document = cpu_runtime.campaign({"net": Path("net.tflite"), "load_large": Path("large.tflite")})
    campaign = parse_manifest(json.dumps(document).encode(), "here")
    assert [delegate.name for delegate in campaign.delegates] == ["cpu", *cpu_report.PEERS]
    assert [excluded["model"] for excluded in document["exclude"]] == ["load_large"]


SMALL = """\
version: 1
campaign: small
defaults: {measure: {blocks: 1, rounds: 1, slice: {seconds: 0.01}, warmup: {runs: 1, min_seconds: 0}}}
models:
  - {id: wave, source: wave.tflite}
delegates:
  litert: {kind: litert}
  cpu: {kind: cpu}
baseline: {delegate: litert}
"""


@pytest.mark.slow
def test_a_campaign_is_submitted_and_its_report_says_what_the_farm_says(tmp_path, monkeypatch):
    def forked(*arguments, stdout=None, **more):
        return run("farm", *arguments, cwd=REPOSITORY, env=os.environ | more)

    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "wave.tflite").write_bytes(unary_model(size=64))
    out = tmp_path / "figures.json"
    for name, value in {**CPU_ALONE, "FARM_HOME": str(tmp_path / "home")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(campaign, "farm", forked)
    command = ["campaign", str(tmp_path / "small.yaml"), "--threads", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", command)
    assert campaign.main() == 0
    base, own = json.loads(out.read_text())["rows"]
    assert (base["delegate"], base["threads"], base["ratio"]) == ("litert", 1, None)
    assert (own["delegate"], own["status"]) == ("cpu", "done")
    # One block has no interval, so that no verdict is decided.
    assert (own["ratio"]["blocks"], own["ratio"]["ci95"]) == (1, None)
    line = f"| wave | 1 | {base['p50_ms']:.3g} | {own['ratio']['median']:.3g} (no interval) "
    assert line + own["ratio"]["verdict"] in out.with_suffix(".md").read_text()


def row(delegate, ms=None, speed=None, verdict="faster", **more):
    found = speed and {"median": speed, "ci95": [0.9 * speed, 1.1 * speed], "verdict": verdict}
    of_row = {"model": "net", "threads": 1, "device": "host-cpu", "device_name": "CPU", "reason": None}
    of_cell = {"delegate": delegate, "p50_ms": ms, "ratio": found, "grade": "good" if ms else None}
    of_cell["rel_l2"] = 2e-3 if speed else None
    return {**of_row, **of_cell, "status": "done" if ms else "unsupported", "reused_from": None, **more}


ROWS = [
    row("base", 10.0), row("gpu", 5.0, 2.0), row("other", reason="no_device: no", device="-"),
    row("base", 20.0, model="more"), row("gpu", 2.5, 8.0, model="more"),
    row("base", 10.0, model="broken"), row("gpu", 1.0, 10.0, "void", model="broken"),
    row("base", 10.0, model="net__static_int8"), row("gpu", 20.0, 0.5, "slower", model="net__static_int8"),
    row("base", 0.5, model="tiny"), row("gpu", 1.0, 0.5, "slower", model="tiny"),
]  # fmt: skip


def test_a_campaign_cut_short_says_that_it_goes_on(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_and_report", interrupted)
    monkeypatch.setattr(sys, "argv", ["campaign", "benchmarks/aa.yaml"])
    assert campaign.main() == 130
    assert "the same command goes on" in capsys.readouterr().err


def test_a_report_counts_verdicts_and_takes_the_mean_over_large_float_models_that_are_not_void():
    report = {"campaign": "some", "baseline": "base", "environment": {"cpu": "EPYC"}, "rows": ROWS}
    text = "\n".join(campaign_report.page(report))
    said = (
        "gpu at 1 thread(s): 2 faster, 2 slower, 1 void; 4.00 x in geometric mean of 2 float models of 1 ms"
    )
    assert f"- {said} and more, least 2.00 x (net)" in text
    assert "- reused from earlier campaigns: 0 of 11 cells" in text
    assert "| model | threads | base ms | gpu | other |" in text
    assert "| net | 1 | 10 | 2 (1.8 to 2.2) faster, good, error 2.0e-03 | no_device |" in text


def test_a_delegate_on_several_devices_has_a_column_for_each():
    rows = [row("gpu", 1.0, 2.0), row("gpu", 1.0, 2.0, device="opencl-0"), row("base", 2.0)]
    assert campaign_report.columns_of(rows, "base") == ["gpu@host-cpu", "gpu@opencl-0"]


def test_what_suits_a_kind_is_told_by_the_ratios_over_the_baseline():
    network = "fp16_weights"
    rows = [{**one, "model": network} for one in ROWS[:3]]
    found = model_kinds.measured_kinds({"campaign": "model_kinds", "baseline": "base", "rows": rows})
    assert found["rows"] == [
        {
            "model": network,
            "kind": "fp16 weights",
            "milliseconds": {"base": 10.0, "gpu": 5.0},
            "partial": {},
            "refused": {"other": "no_device: no"},
        }
    ]
    assert (found["source"], found["machine"]) == ("benchmarks/results/model_kinds.json", "CPU")


def test_the_cost_of_sizes_is_drawn_as_a_line_for_each_delegate_and_number_of_threads():
    named = [m.id for m in load_manifest(sizes.CAMPAIGN).models]
    rows = [
        row(delegate, 8.0 if delegate == "base" else 4.0, threads=threads) | {"model": model}
        for model in named
        for delegate in ("base", "gpu")
        for threads in (1, 2)
    ]
    points = sizes.points_of([*rows, row("gpu", None) | {"model": named[0]}])
    assert len(points) == len(rows)
    assert {point.ms for point in points if point.batch == 32} == {8 / 32, 4 / 32}
    drawn = ElementTree.fromstring(sizes.drawing(points))
    lines = drawn.findall(".//{*}polyline")
    assert len(lines) == 2 * 2 * 4, "two networks, over batches and over images, four lines in each panel"
    assert {len(line.get("points").split()) for line in lines} == {3, 4}
    with pytest.raises(ValueError, match="nothing to draw"):
        sizes.drawing([])


def cpu_row(model, reference, builtin, **cells):
    own = row("cpu", 10.0, init_warm_ms=3.0, peak_bytes=100 << 20, ready_bytes=1 << 20, **cells)
    peers = {
        "litert-reference": row("litert-reference", 10.0 / reference, reference),
        "litert-builtin": row("litert-builtin", 10.0 / builtin, builtin, peak_bytes=20 << 20),
    }
    return {"model": model, "kind": "float32", "operators": 10, "cells": {"cpu": own, **peers}}


def test_the_marks_of_the_cpu_are_over_the_reference_kernels_and_the_memory_of_the_builtin_ones():
    rows = [cpu_row("fast", 0.1, 0.5), cpu_row("even", 0.4, 2.0), cpu_row("small", 10.0, 2.0)]
    rows += [cpu_row(name, 1.0, 1.0) for name in cpu_report.LOADED]
    lines = cpu_report.marks(rows)
    assert "float: 5.00 x litert-reference in geometric mean of 2 (mark 5); below 1 x: none" in lines
    assert "float: 1.00 x litert-builtin in geometric mean of 2 (no mark); below 0.67 x: even 0.50" in lines
    # Ours takes 10 ms, the reference kernels a tenth of it, over ten operators.
    assert any("median 900.0 us (mark 8); above it: small 900.00" in line for line in lines)
    assert any(line.endswith("of 3: fast 100.00, even 100.00, small 100.00") for line in lines)
    assert (
        lines[-1] == "loading 250 MB: 1.00 x the time of 2.5 MB (mark 3), resident memory +1.0 MiB (mark 8)"
    )


def test_arms_take_turns_so_that_each_stands_in_every_place(monkeypatch):
    order = []

    def arm(name, seconds):
        def timed():
            order.append(name)
            return seconds

        return timed

    monkeypatch.setattr("benchmarks.interleaved.Round.disturbed", None)
    found = measure({"a": arm("a", 2.0), "b": arm("b", 1.0)}, 4)
    assert found.seconds == {"a": (2.0,) * 4, "b": (1.0,) * 4}
    assert "".join(order) == "abbabaab"
    assert ratio(found.seconds["a"], found.seconds["b"]) == {"ratio": 2.0, "ci95": (2.0, 2.0), "rounds": 4}


@pytest.mark.parametrize(("disturbed", "rounds", "repeated"), [([1], 4, 1), (range(99), 4, 0)])
def test_a_disturbed_round_is_repeated_unless_that_is_the_rule(monkeypatch, disturbed, rounds, repeated):
    numbers = iter(range(100))
    clean = property(lambda _: "others" if next(numbers) in disturbed else None)
    monkeypatch.setattr("benchmarks.interleaved.Round.disturbed", clean)
    found = measure({"a": lambda: 1.0}, rounds)
    assert (len(found.seconds["a"]), found.repeated) == (rounds, repeated)


def test_a_call_longer_than_a_slice_is_called_once_to_know_it_and_once_a_slice():
    calls = []
    timed = slices(lambda: calls.append(None), slice_s=0.0)
    assert (timed() > 0, len(calls)) == (True, 2)
