"""The farm's benchmarks at a small size: that they run and what they report, not how fast this machine is."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import channel_counts, coverage, judge_power_report, kernels
from benchmarks.corruptions import CORRUPTIONS, STRENGTH, corrupted
from runtime.delegates.gpu.backends.base import check_groups
from runtime.delegates.gpu.backends.opencl import library
from runtime.judge.agreement import Expected, OutputFacts, judge
from runtime.judge.rules import Arithmetic, rule_for
from tests import needs
from tests.sweeps import rarely


def figures(tmp_path, module, *options):
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", f"benchmarks.{module}", *options, "--out", str(out)]
    done = subprocess.run(command, cwd=needs.REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


@pytest.mark.slow
def test_counts_of_channels_have_times_and_bytes(tmp_path):
    """One run of each count, for which the machine need not be quiet, as it must be for the benchmark."""
    seconds = {}
    for count in channel_counts.COUNTS:
        run = channel_counts.run_of(count, str(tmp_path))
        run()
        start = time.perf_counter()
        run()
        seconds[str(count)] = (time.perf_counter() - start,)
    rows = {count: channel_counts.row_of(count, seconds) for count in channel_counts.COUNTS}
    assert set(rows) >= {1, 3, 4, 5, 7, 8}
    assert all(row["time"]["ratio"] > 0 for row in rows.values())
    # Whole vectors of 16 channels: what is no multiple takes the memory of the next one.
    assert {rows[count]["activation_bytes"] for count in (1, 3, 4, 5, 7, 8)} == {rows[16]["dense_bytes"]}
    table = channel_counts.page(list(rows.values()))
    assert sum(line.startswith("| ") for line in table) == 1 + len(rows)


def test_a_warm_start_took_a_small_share_of_a_cold_one_where_both_were_measured():
    """Of what the benchmark of starts has kept: LiteRT's documents promise 15 percent."""
    kept = json.loads((needs.REPOSITORY / "benchmarks/results/start.json").read_text(encoding="utf-8"))
    for name, starts in kept["models"].items():
        assert starts["warm"]["compiled"] == 0, name
        assert starts["warm"]["start_s"] <= 0.15 * starts["cold"]["start_s"], name


@pytest.mark.slow
@pytest.mark.parametrize("classes", ["0", rarely("1")])
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_measuring_costs_is_measured(tmp_path):
    found = figures(tmp_path, "measuring_cost", "--parts", "loop", "sensors", "--slices", "4")
    assert 0 < found["loop"]["overhead_us_median"] < 1000
    assert found["sensors"]["sensors"] > 0
    assert found["sensors"]["rounds_of_readings"] > 0
    low, high = found["sensors"]["ci95"]
    assert low <= found["sensors"]["ratio"] <= high


@pytest.mark.slow
def test_what_the_sandbox_costs_is_measured(tmp_path):
    small = ("--rounds", "1", "--seconds", "0.01", "--delegates", "litert", "cpu")
    found = figures(tmp_path, "sandbox", "--models", "torchvision_mobilenet_v3_small", *small)
    assert [row["delegate"] for row in found["rows"]] == ["litert", "cpu"]
    assert all(row[figure]["ratio"] > 0 for row in found["rows"] for figure in ("init", "p50", "memory"))


@pytest.mark.slow
def test_the_farms_loop_is_compared_with_a_plain_one(tmp_path):
    model = "torchvision_mobilenet_v3_small"
    found = figures(tmp_path, "plain_loop", "--models", model, "--blocks", "1", "--rounds", "2")
    assert {"ms", "again", "plain", "agree"} == set(found[model])
    assert found[model]["plain"]["ratio"] > 0


@pytest.mark.slow
def test_two_campaigns_are_compared_whole_and_timed(tmp_path):
    found = figures(tmp_path, "compare_scale", "--cells", "20", "--rounds", "1")
    assert found["cells"] == 20
    assert found["compare_s"][0] > 0
    assert found["compare_cpu_s"][0] > 0


@pytest.mark.slow
def test_a_site_is_built_whole_again_and_with_one_more_and_timed(tmp_path):
    found = figures(tmp_path, "site_scale", "--models", "10", "--columns", "2", "--versions", "2")
    assert found["results"] == 40
    assert found["first_s"][1] > 0
    assert found["unchanged_s"][1] > 0
    assert found["files"] > 40


@pytest.mark.slow
def test_a_home_page_of_many_models_is_opened_filtered_and_sorted_in_a_browser(tmp_path):
    found = figures(tmp_path, "home_scale", "--rows", "250", "--rounds", "1")
    assert found["rows"] == 250
    timed = ("opened", "filtered", "sorted", "first_choice", "chosen", "filtered_then")
    assert all(ms > 0 for name in timed for ms in found[name])


@pytest.mark.parametrize("arithmetic", STRENGTH)
def test_the_judge_catches_the_catalogue_where_honest_runs_differ_by_a_third_of_its_strength(arithmetic):
    """Every corruption applies to a picture, and changes it; nearly all are caught."""
    draw = np.random.default_rng(3)
    right = [draw.normal(0.3, 1, (1, 40, 40, 6)).astype(np.float32) for _ in range(2)]

    def run() -> list[np.ndarray]:
        off = STRENGTH[arithmetic] / 3
        return [(r + draw.normal(0, off, r.shape)).astype(np.float32) for r in right]

    runs = {name: [[one] for one in run()] for name in ("xnnpack", "fp16")}
    expected = Expected([[r] for r in right], [OutputFacts("y")], runs)
    kind = Arithmetic.MIXED if arithmetic == "quantised" else Arithmetic.FLOAT
    precision = "fp16" if arithmetic == "fp16" else "fp32"
    rule = rule_for(kind, integer_path=False, precision=precision, draws=runs)
    honest = run()
    assert judge(expected, [[one] for one in honest], rule).verdict == "pass"
    made = corrupted(honest, OutputFacts("y"), arithmetic)
    assert len(CORRUPTIONS) == judge_power_report.KINDS
    assert len(made) >= judge_power_report.MARK
    missed = [what for what, sets in made.items()
              if judge(expected, [[one] for one in sets], rule).verdict != "fail"]  # fmt: skip
    assert len(missed) <= judge_power_report.KINDS - judge_power_report.MARK, missed


def test_the_last_report_of_the_judge_meets_its_marks():
    kept = json.loads((needs.REPOSITORY / "benchmarks/results/judge_power.json").read_text(encoding="utf-8"))
    counts: dict[str, dict[str, int]] = {}
    for name, row in kept["rows"].items():
        for label, found in row.get("rules", {}).items():
            wrong = [what for what, one in found["honest"].items() if one["verdict"] == "fail"]
            assert not wrong, f"{name} ({label}): {wrong}"
            for outcome, count in found["counts"].items():
                counts.setdefault(label, {}).setdefault(outcome, 0)
                counts[label][outcome] += count
    assert set(counts) >= set(STRENGTH)
    for label, of_label in counts.items():
        share = of_label["caught"] / sum(of_label.values())
        assert share * judge_power_report.KINDS >= judge_power_report.MARK, (label, of_label)


def test_the_work_list_has_first_what_loses_most_against_the_roofline():
    def row(name, time_ns, flops, moved, label="layer 1x56x56"):
        return {"name": name, "label": label, "time_ns": time_ns, "flops": flops, "bytes": moved}

    peaks = {"gflops": 100.0, "gigabytes": 20.0}
    rows = [
        row("f32_gemm", 2_000_000, 100_000_000, 8_000_000),  # 1000 us of arithmetic
        row("f32_copy", 4_000_000, 0, 20_000_000),  # 1000 us of traffic
        row("i8_integer_gemm_product", 1_000_000, 400_000_000, 0),  # four times the peak: nothing lost
        row("f32_cached", 1_000_000, 0, kernels.CACHED_BYTES),  # no traffic that counts: lost as a whole
        row("f32_uncounted", 5_000_000, 0, 0, "conv 3x3s2 28x28"),
    ]
    known = {"a": {"rows": rows, "peaks": peaks}, "b": {"rows": rows[:1], "peaks": None}}
    found = {one["function"]: (one["us"], one["lost_us"]) for one in kernels.work_list(known)}
    assert next(iter(found)) == "f32_copy"
    assert found == {
        "f32_copy": (4000.0, 3000.0), "f32_gemm": (4000.0, 2000.0), "f32_cached": (1000.0, 1000.0),
        "i8_integer_gemm_product": (1000.0, 0.0), "f32_uncounted": (5000.0, 0.0),
    }  # fmt: skip
    work, operators = kernels.work_list(known), kernels.by_operator(known)
    page = kernels.page(kernels.by_model(known), kernels.best_peaks(known), {}, work, operators)
    assert "| `f32_copy` | 1 | 4000 | 3000 | layer 1x56x56 of a, 3000 us |" in page
    assert {one["operator"]: (one["us"], one["least_us"]) for one in operators} == {
        "layer": (10000.0, 4000.0), "conv 3x3s2": (5000.0, 5000.0),
    }  # fmt: skip
    assert (
        page[page.index("| operator | us | at the roofline | share |") + 2]
        == "| layer | 10000 | 4000 | 40% |"
    )
    assert page[-2:] == ["| b | 2000 | 1000 | 50% |", "| a | 13000 | 8000 | 62% |"]


def test_the_check_that_coverage_passes_over_on_rusticl_is_where_it_says():
    assert getattr(library, coverage.GROUP_CHECK) is check_groups
