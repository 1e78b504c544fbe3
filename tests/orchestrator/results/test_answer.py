"""The answer of a campaign: who is fastest, what each cell says, and what the signs mean."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.wire.measurement import Delegation
from agent.wire.messages import ReasonCode
from orchestrator.cli.outcome import answer_markdown
from orchestrator.results.answer.build import answer_of
from orchestrator.results.answer.headline import first_starts
from orchestrator.results.answer.layout import lines, width
from orchestrator.results.format import known, percent, short_time
from orchestrator.results.metrics import named
from orchestrator.results.records import CellRecord
from orchestrator.results.speedups import speedup
from tests.orchestrator.cli.records import ended
from tests.orchestrator.results.answered import DEMO, demo, failed, measured, wrong

GOLDEN = """\
demo  9 models · AMD EPYC, 2 threads · quick · 23 Nov 08:06          27/27 right
gpu beats litert on 5 of 9 (up to 1.8x), loses on 2 (up to 2.4x), equal on 1.
First start: gpu 4.0-9.6 s (later 90-170 ms), litert 3.0-67 ms, cpu 3.0-19 ms.

model                             litert     gpu (OpenCL on CPU)   cpu
face_detection_short_range        0.709 ms   ▲ 0.58  1.23x         ▼  2.5  3.57x
face_landmark                     0.661 ms   ▼ 0.84  1.27x         ▼  3.9   5.9x
hand_landmark_lite                 4.10 ms   ▲  3.4  1.20x         ▼   20   5.0x
torchvision_mobilenet_v2           5.02 ms   ▲  3.3  1.50x         ▼   24   4.8x
torchvision_mobilenet_v3_small     1.18 ms   = 1.19  0.99x         ▼  5.4   4.5x
torchvision_resnet18               20.2 ms   ▲ 11.1  1.82x         ▼   52   2.6x
torchvision_squeezenet1_1           4.4 ms   ▲  2.8  1.60x         ▼ 14.7   3.3x
torchvision_efficientnet_b0         7.3 ms   ·  7.1  1.03x         ▼   32   4.3x
torchvision_mobilene…tatic_int8    1.90 ms   ▼  4.6   2.4x         ▼   31    16x
geometric mean                                       1.09x           4.8x slower
▲▼ sure (95 %)  = the same  · open: 1 (`farm refine demo`, ~1 min)"""


def shown(*cells, baseline="litert", columns=100):
    return lines(answer_of(cells, baseline), columns)


def test_the_demo_fits_80_columns_and_16_lines():
    found = lines(answer_of(demo(), "litert"), 80)
    assert "\n".join(found) == GOLDEN
    assert len(found) <= 16
    assert max(map(width, found)) <= 80


def test_the_minutes_are_of_the_blocks_of_each_arm_s_last_attempt():
    """Each took 10 min for the last 9 of its 16 blocks, and the cold process, which takes as long as one."""
    arms = [measured(delegate="litert", blocks=16), measured(ratio=1.03, blocks=16)]
    last = replace(arms[0].attempts[0], duration_ns=600_000_000_000)
    for number, arm in enumerate(arms):
        own = arm.measurement.model_copy(update={"settings": {"processes": "9"}})
        arms[number] = replace(arm, measurement=own, attempts=(arm.attempts[0], last))
    (found,) = [one for one in shown(*arms) if "farm refine" in one]
    missing = speedup(arms[1], arms[0]).blocks_needed - 16
    assert missing > 0
    assert f"~{2 * missing} min" in found


def excluded(model: str, delegate: str) -> CellRecord:
    return ended(model, delegate, "cancelled", ReasonCode.EXCLUDED, "by the rule {model: '*'}")


def test_what_the_campaign_excludes_stays_blank_and_is_not_counted():
    """A delegate of one model leads no headline, however fast it is there."""
    models = [model for model, *_ in DEMO]
    narrow = [excluded(model, "gpu-bf16") for model in models[1:]]
    fast = measured(models[0], "gpu-bf16", 0.2, ratio=3.5)
    found = shown(*demo(), fast, *narrow, columns=80)
    assert found[0].endswith("28/28 right")
    assert found[1].startswith("gpu beats litert on 5 of 9")
    assert "excluded" not in "\n".join(found)
    assert found[4].split()[-1] == "gpu-bf16"
    assert found[5].split()[-1] == "3.50x"
    assert found[6].split()[-1] == "5.9x"
    assert len(found) <= 16
    assert max(map(width, found)) <= 80


def test_a_delegate_that_no_model_runs_on_for_one_reason_takes_no_column():
    """With it, the names of the models would be cut."""
    why = "bfloat16 gains nothing here"
    narrow = [
        ended(model, "gpu-bf16", "unsupported", ReasonCode.UNSUPPORTED_PRECISION, why)
        for model, *_ in DEMO[:2]
    ]
    found = shown(*demo(), *narrow, columns=80)
    assert found[4:-1] == GOLDEN.splitlines()[4:]
    assert found[-1] == f"[a] gpu-bf16 unsupported: {why}"
    alone = shown(measured(DEMO[0][0], "litert", 4.0, half=0.005), narrow[0])
    assert "unsupported [a]" in "\n".join(alone), "of one model, every delegate is a column"


def test_a_campaign_that_excludes_everything_says_so():
    assert "excluded [a]" in "\n".join(shown(excluded("net", "gpu"), excluded("net", "litert")))


BASE = measured("net", "litert", 4.0, half=0.005)
PARTIAL = Delegation(status="partial", delegated_ops=3, total_ops=9, partitions=2)
ENTRIES = {
    "faster": (measured(ratio=1.8, ratio_half=0.08), "▲ 2.00  1.8x", "▲ sure (95 %)"),
    "slower": (measured(ratio=0.0625, ratio_half=0.08), "▼ 2.00  16x", "▼ sure (95 %)"),
    "the same": (measured(ratio=0.99, ratio_half=0.01), "= 2.00  0.99x", "= the same"),
    "open": (measured(ratio=1.03, ratio_half=0.07), "· 2.00  1.03x", "· open: 1 (`farm refine demo`"),
    "open below one": (measured(ratio=0.5, ratio_half=0.8), "· 2.00  ~2x slower", "· open: 1"),
    "noisy": (measured(half=0.4, ratio=3.0), "▲ ~2  3.00x", "~ noisy"),
    "without an interval": (measured(half=None, ratio=3.0), "▲ ~2.0  3.00x", "~ noisy"),
    "not paired": (measured(), "≈ 2.00  2.0x", "≈ unpaired, no verdict"),
    "not judged": (measured(ratio=3.0, verdict=None), "▲ 2.00?  3.00x", "? output not judged"),
    "in part": (measured(ratio=3.0, delegation=PARTIAL), "▲ 2.00*  3.00x", "* partly on the CPU"),
    "reused": (replace(measured(ratio=3.0), reused_from="other"), "▲ 2.00  3.00x", "1 reused"),
    "void": (measured(ratio=3.0, void=("swapped", "drifted")), "void [a]", "[a] swapped"),
    "wrong output": (wrong("net", "gpu"), "wrong output [a]", "[a] rel_l2 0.5 > 0.0001"),
    "unsupported": (failed("net", "gpu"), "unsupported [a]", "[a] operator 3 RFFT2D has no kernel"),
}


@pytest.mark.parametrize("case", ENTRIES)
def test_a_cell_has_its_sign_and_the_sign_is_explained(case):
    one, written, explained = ENTRIES[case]
    (entry,) = answer_of([BASE, one], "litert").columns[1].entries
    assert (entry.word or f"{entry.sign} {entry.time}  {entry.ratio}") == written
    below = shown(BASE, one, columns=60)
    assert any(explained in line for line in below[below.index("") + 3 :]), below


def test_signs_that_do_not_occur_are_not_explained():
    below = shown(BASE, measured(ratio=3.0))
    assert below[-1] == "▲ sure (95 %)"


HEADLINES = {
    "wins": ([measured(ratio=1.8)], "gpu beats litert on 1 of 1 (1.8x)."),
    "loses": ([measured(ratio=0.4)], "gpu loses to litert on 1 of 1 (2.5x)."),
    "equals": ([measured(ratio=1.0, ratio_half=0.01)], "gpu equals litert on 1 of 1."),
    "open": ([measured(ratio=1.03, ratio_half=0.07)], "gpu is open against litert on 1 of 1."),
    "not paired": ([measured()], "gpu is unpaired with litert on 1 of 1."),
    "void": ([measured(ratio=3.0, void=("swapped",))], "gpu has no ratio over litert on 1 of 1."),
    "all failed": ([failed("net", "gpu")], "gpu has no ratio over litert on 1 of 1."),
    "two": (
        [measured(ratio=1.8), measured(delegate="cpu", ratio=0.1)],
        "gpu beats litert on 1 of 1 (1.8x); cpu loses on 1 of 1 (10x).",
    ),
}


@pytest.mark.parametrize("case", HEADLINES)
def test_the_headline_says_who_is_fastest(case):
    cells, said = HEADLINES[case]
    assert shown(BASE, *cells)[1] == said


def test_without_a_baseline_the_headline_claims_no_verdict():
    cells = [measured(delegate="cpu", p50=2.0), measured(p50=1.0)]
    assert shown(*cells, baseline=None)[1] == "Least p50: gpu on 1 of 1; no baseline, so no verdict."
    assert shown(cells[0], baseline=None)[1] == "cpu: p50 of 2.0 ms; one delegate, no ratio."
    assert shown(failed("net", "gpu"), baseline=None)[1] == "Nothing was measured."


def test_the_baseline_comes_first_and_then_the_fastest():
    cells = [measured(delegate="cpu", ratio=0.3), measured(ratio=1.5), BASE]
    found = shown(*cells)
    assert [word for word in found[found.index("") + 1].split() if word in ("cpu", "gpu", "litert")] == [
        "litert", "gpu", "cpu",
    ]  # fmt: skip


def test_reasons_are_lettered_from_the_worst_and_bounded():
    cells = [
        BASE,
        failed("net", "gpu", "no kernel"),
        wrong("net", "cpu"),
        measured(delegate="npu", void=("swapped",)),
    ]
    assert shown(*cells)[-3:] == ["[a] rel_l2 0.5 > 0.0001", "[b] swapped", "[c] no kernel"]
    many = [failed(f"net{n}", "gpu", f"reason {n}") for n in range(9)]
    assert shown(*many, baseline=None)[-1] == "3 more reasons: -v"


def test_unequal_threads_are_said_in_the_headings_and_equal_ones_once_above():
    assert "2 threads" in shown(BASE, measured(ratio=2.0))[0]
    one = measured(delegate="cpu", ratio=2.0)
    slow = replace(one, measurement=one.measurement.model_copy(update={"settings": {"threads": "1"}}))
    found = shown(BASE, slow)
    assert "threads" not in found[0]
    assert "cpu (threads: 1)" in found[found.index("") + 1]


def test_the_columns_of_a_wide_terminal():
    found = shown(BASE, measured(ratio=3.0, delegation=PARTIAL, start=(4000.0, 90.0)), columns=200)
    heading, line = found[found.index("") + 1 : found.index("") + 3]
    assert heading.split()[-6:] == ["cold", "warm", "p90", "memory", "device"][-6:] or "ops" in heading
    for figure in ("3/9", "4.0s", "90ms", "4.8 MiB", "AMD EPYC (OpenCL on CPU)", "2%"):
        assert figure in line


@pytest.mark.parametrize(
    ("allowance", "why"), [(0.2, "others keep this machine busy"), (0.045, "too near to call")]
)
def test_what_no_number_of_blocks_decides_is_called_so(allowance, why):
    near = measured(ratio=1.01, ratio_half=0.0501)
    ratio = near.measurement.ratio.model_copy(update={"allowance": allowance})
    stuck = replace(near, measurement=near.measurement.model_copy(update={"ratio": ratio}))
    assert shown(BASE, stuck)[-1].endswith(f"· open: 1, {why}")


def test_another_figure_has_neither_ratios_nor_verdicts():
    found = lines(answer_of(demo(), "litert", named("init_warm")), 80)
    assert found[1] == "init, warm, lower is better."
    assert not any(sign in "".join(found) for sign in "▲▼=")
    assert len(found) <= 14


def test_markdown_has_the_same_answer():
    text = answer_markdown(demo(), "litert")
    assert "| model | litert | gpu (OpenCL on CPU) | cpu |" in text
    assert "▲ 11.1 1.82x ±" in text
    assert "gpu beats litert on 5 of 9" in text
    assert "| geometric mean |  | 1.09x | 4.8x slower |" in text


@pytest.mark.parametrize(
    ("value", "known_to", "written"),
    [
        (52.34, 0.08, "52"), (11.13, 0.08, "11"), (1.234, 0.08, "1.2"), (9.96, 0.08, "10"),
        (20.234, 0.005, "20.2"), (1.9, 0.005, "1.90"), (1.2345, 0.005, "1.234"), (31.4, 0.4, "30"),
        (0.000123, 0.02, "0.000123"), (1234.0, 0.5, "1200"), (7.3, None, "7.3"), (0.0, 0.1, "0"),
        (1.0, 0.0, "1.000"), (2.0, 9.0, "2"),
    ],
)  # fmt: skip
def test_digits_follow_how_well_a_figure_is_known(value, known_to, written):
    assert known(value, known_to) == written


def test_shares_and_starts_are_short():
    assert [percent(one) for one in (0.003, 0.08, 0.0949, 0.63, 2.0)] == [
        "0.3 %",
        "8 %",
        "9 %",
        "63 %",
        "200 %",
    ]
    assert [short_time(one) for one in (0.25, 64.4, 999.4, 999.6, 4100.0, 64_000.0)] == [
        "0.25 ms", "64 ms", "1000 ms", "1.0 s", "4.1 s", "64 s",
    ]  # fmt: skip


def test_equal_first_starts_of_which_one_has_no_later_one_are_told():
    said = first_starts({"gpu": [(400.0, None), (400.0, 100.0)], "cpu": [(900.0, None)]})
    assert said == ("First start: cpu 900 ms", ", gpu 400 ms (later 100 ms)")
