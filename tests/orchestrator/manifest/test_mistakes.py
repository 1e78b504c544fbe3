"""Every mistake in a campaign file is named with its line and column."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from orchestrator.manifest.schema import RETRIED_KINDS
from orchestrator.manifest.values import Whole
from tests.orchestrator.manifest.manifests import MINIMAL, added, mistakes, model

BATCH_IS_A_SHAPE = (
    "a batch of 8 is the shape of an input, `inputs: {NAME: {shape: [8, ...]}}`; samples per second are 8 "
    "times `throughput.per_second`"
)
IN_PLACE_OF_PROCESSES = "`blocks: 3`, or `blocks: {min: 3, max: 6}`: each has one process"
IN_PLACE_OF_TIMED = "`rounds: 7` and `slice: {min_runs: 5, seconds: 0.1}`: delegates take turns by slices"
TARGET_FORM = "expected a share from 0.1% to 100%, such as 5% or 0.05; found "
BUDGET_FORM = (
    "expected FIGURE<=LIMIT, e.g. p50<=5ms, p99<=12.5ms, init<=2s, memory<=200MB, or fps>=30, ratio>=0.95"
)

MISTAKES = {
    "unknown_key": (
        added("baselin: {delegate: cpu}"),
        "7:1: unknown key 'baselin'; did you mean 'baseline'?",
    ),
    "unknown_model_key": (model("shaa256: x"), "4:31: unknown key 'shaa256'; did you mean 'sha256'?"),
    "wrong_budget": (
        added("budgets: [p50<5MB]"),
        "7:11: budget 'p50<5MB': " + BUDGET_FORM,
    ),
    "ratio_without_a_campaign": (
        added("budgets: [ratio>=0.95]"),
        "7:11: ratio>=0.95 needs an earlier campaign: baseline: {against: {campaign: latest}}",
    ),
    "ratio_with_a_unit": (
        added("budgets: [ratio<=5ms]"),
        "7:11: budget 'ratio<=5ms': ratio has no unit, e.g. ratio>=0.95",
    ),
    "empty_baseline": (added("baseline: {}"), "1:1: an empty baseline; write `baseline: {delegate: NAME}`"),
    "notify_without_tls": (
        added("notify: {url: 'http://example.org/hook'}"),
        "7:15: 'http://example.org/hook': expected https://HOST/PATH without a user name",
    ),
    "notify_nobody": (added("notify: {}"), "7:9: missing key 'url'"),
    "measure_key_of_a_later_version": (
        model("measure: {timing: true}"),
        "4:41: key 'timing' is not supported by this version",
    ),
    "measure_key_of_an_earlier_version": (
        model("measure: {processes: 3}"),
        "4:41: key 'processes' was replaced; write " + IN_PLACE_OF_PROCESSES,
    ),
    "timed_runs_of_an_earlier_version": (
        added("defaults: {measure: {timed: {min_runs: 30}}}"),
        "7:22: key 'timed' was replaced; write " + IN_PLACE_OF_TIMED,
    ),
    "target_of_an_earlier_version": (
        model("measure: {target_ci: 2%}"),
        "4:41: key 'target_ci' was replaced; write `target: 5%`",
    ),
    "batch_is_a_shape": (
        model("measure: {batch: 8}"),
        "4:41: key 'batch' does not belong here; " + BATCH_IS_A_SHAPE,
    ),
    "sustained_for_no_time": (model("measure: {sustained: {}}"), "4:52: missing key 'minutes'"),
    "profile_of_another_kind": (
        model("measure: {profile: kernel}"),
        "4:50: unknown profile 'kernel'; did you mean 'kernels'?",
    ),
    "throughput_without_seconds": (
        model("measure: {throughput: {in_flight: 4}}"),
        "4:53: missing key 'seconds'",
    ),
    "too_many_in_flight": (
        model("measure: {throughput: {in_flight: 65, seconds: 1}}"),
        "4:65: expected a whole number at least 1 at most 64, found 65",
    ),
    "throughput_for_too_long": (
        model("measure: {throughput: {in_flight: 1, seconds: 601}}"),
        "4:77: expected a number at least 0.1 at most 600, found 601",
    ),
    "pipeline_of_nothing": (
        model("measure: {pipeline: {seconds: 5}}"),
        "4:51: a pipeline needs one of `preprocess: resize` and `cpu_ms: 3`",
    ),
    "pipeline_of_two_things": (
        model("measure: {pipeline: {preprocess: resize, cpu_ms: 3}}"),
        "4:51: a pipeline needs one of `preprocess: resize` and `cpu_ms: 3`",
    ),
    "pipeline_of_another_kind": (
        model("measure: {pipeline: {preprocess: resise}}"),
        "4:64: unknown pre-processing 'resise'; did you mean 'resize'?",
    ),
    "pipeline_that_spends_too_much": (
        model("measure: {pipeline: {cpu_ms: 1001}}"),
        "4:60: expected a number at least 0.01 at most 1000, found 1001",
    ),
    "misplaced_key": (
        added("reuse: never"),
        "7:1: key 'reuse' does not belong here; it belongs under 'defaults'",
    ),
    "too_many_retries": (
        added("defaults: {retry: {times: 3}}"),
        "7:27: expected a whole number at least 0 at most 2, found 3",
    ),
    "failure_that_is_never_tried_again": (
        model("retry: {kinds: [timeout]}"),
        "4:47: unknown kind of failure 'timeout'; known: " + ", ".join(RETRIED_KINDS),
    ),
    "misplaced_retry": (
        added("retry: {times: 0}"),
        "7:1: key 'retry' does not belong here; it belongs under 'defaults'",
    ),
    "unknown_level": (added("level: quik"), "7:8: unknown level 'quik'; did you mean 'quick'?"),
    "unknown_reuse": (
        added("defaults: {reuse: nevr}"),
        "7:19: unknown reuse rule 'nevr'; did you mean 'never'?",
    ),
    "unknown_kind": (
        MINIMAL.replace("kind: cpu", "kind: cpuu"),
        "6:15: unknown delegate kind 'cpuu'; did you mean 'cpu'?",
    ),
    "unknown_option": (
        MINIMAL.replace("kind: cpu", "kind: cpu, thread: 1"),
        "6:20: unknown option 'thread' of delegate kind 'cpu'; did you mean 'threads'?",
    ),
    "option_of_wrong_type": (
        MINIMAL.replace("kind: cpu", "kind: cpu, threads: many"),
        "6:29: expected a whole number at least 1 at most 1024, found text 'many'",
    ),
    "delegate_without_kind": (MINIMAL.replace("kind: cpu", "threads: 1"), "6:8: missing key 'kind'"),
    "duplicate_key": (added("version: 1"), "7:1: key 'version' is written twice; first on line 1"),
    "key_that_is_a_list": (added("[a]: 1"), "7:1: expected text, found a list"),
    "duplicate_id": (
        MINIMAL.replace("delegates:", "  - {id: a, source: b.tflite}\ndelegates:"),
        "5:10: id 'a' is used twice; first on line 4",
    ),
    "duplicate_delegate": (
        (MINIMAL + "  cpu-t1: {kind: cpu}\n").replace("cpu: {kind: cpu}", "cpu: {kind: cpu, threads: [1]}"),
        "7:11: two delegates would be called 'cpu-t1'",
    ),
    "unknown_baseline": (
        added("baseline: {delegate: cpuu}"),
        "7:22: the baseline 'cpuu' is no delegate of this file; did you mean 'cpu'?",
    ),
    "exclude_matches_nothing": (
        added("exclude: [{model: aa}]"),
        "7:19: no model is called 'aa'; did you mean 'a'?",
    ),
    "exclude_everything": (added("exclude: [{}]"), "7:11: an empty rule would exclude everything"),
    "include_matches_nothing": (
        added("include: [{delegate: cpuu}]"),
        "7:22: no delegate is called 'cpuu'; did you mean 'cpu'?",
    ),
    "include_everything": (added("include: [{}]"), "7:11: an empty rule would include everything"),
    "include_nothing": (added("include: []"), "7:10: expected 1 to 1000 items, found 0"),
    "list_for_mapping": (added("labels: [a]"), "7:9: expected keys with values, found a list"),
    "text_for_list": (added("devices: all"), "7:10: unknown word for devices 'all'; known: any, each"),
    "unknown_device_kind": (
        added("devices: [{kind: gppu}]"),
        "7:18: unknown device kind 'gppu'; did you mean 'gpu'?",
    ),
    "number_for_text": (
        MINIMAL.replace("source: a.tflite", "source: 3"),
        "4:21: expected text, found a whole number '3'; put it in quotes",
    ),
    "date_for_text": (
        MINIMAL.replace("source: a.tflite", "source: 2024-01-01"),
        "4:21: expected text, found a date '2024-01-01'; put it in quotes",
    ),
    "bad_sha256": (model("sha256: abc"), "4:39: 'abc': expected 64 lower-case hex digits"),
    "number_out_of_range": (
        model("measure: {blocks: 0}"),
        "4:49: expected a whole number at least 1 at most 40, found 0",
    ),
    "fraction_for_count": (
        model("measure: {blocks: {min: 1.5}}"),
        "4:55: expected a whole number at least 1 at most 40, found a number '1.5'",
    ),
    "minimum_over_maximum": (
        model("measure: {blocks: {min: 9}}"),
        "4:40: blocks.min 9 exceeds blocks.max 6 (level quick); set blocks.max too, or write `blocks: 9`",
    ),
    "minimum_over_maximum_of_the_same_key": (
        model("measure: {blocks: {min: 6, max: 3}}"),
        "4:40: blocks.min 6 exceeds blocks.max 3 (level quick); set blocks.max too, or write `blocks: 6`",
    ),
    "too_many_blocks": (
        model("measure: {blocks: {max: 41}}"),
        "4:55: expected a whole number at least 1 at most 40, found 41",
    ),
    "blocks_without_a_bound_of_that_name": (
        model("measure: {blocks: {most: 4}}"),
        "4:50: unknown key 'most'; known: max, min",
    ),
    "no_blocks_but_a_list": (
        model("measure: {blocks: [3, 6]}"),
        "4:49: expected a whole number at least 1 at most 40, found a list",
    ),
    "target_of_nothing": (model("measure: {target: 0}"), "4:49: " + TARGET_FORM + "a whole number '0'"),
    "target_below_what_can_be_told": (
        model("measure: {target: 0.09%}"),
        "4:49: " + TARGET_FORM + "text '0.09%'",
    ),
    "target_without_a_sign": (model("measure: {target: 5}"), "4:49: " + TARGET_FORM + "a whole number '5'"),
    "target_above_everything": (model("measure: {target: 101%}"), "4:49: " + TARGET_FORM + "text '101%'"),
    "target_below_zero": (model("measure: {target: -5%}"), "4:49: " + TARGET_FORM + "text '-5%'"),
    "target_of_two_numbers": (model("measure: {target: [1%, 5%]}"), "4:49: " + TARGET_FORM + "a list"),
    "slice_that_would_not_alternate": (
        model("measure: {slice: {seconds: 11}}"),
        "4:58: expected a number at least 0 at most 10, found 11",
    ),
    "bad_duration": (
        model("limits: {job: soon}"),
        "4:45: expected a duration such as 30s, 15m or 12h, found text 'soon'",
    ),
    "empty_range": (
        model("inputs: {x: {random: {range: [1, 1]}}}"),
        "4:60: expected [low, high] with low < high, found [1, 1]",
    ),
    "unsupported_source": (
        MINIMAL.replace("a.tflite", "http://host/a.tflite"),
        (
            "4:21: http: sources are not supported by this version; "
            "use a path, a .skel path, zoo:NAME, https:, pypi:NAME==VERSION!MEMBER or npm:NAME@VERSION!MEMBER"
        ),
    ),
    "pypi_without_version": (
        MINIMAL.replace("a.tflite", "pypi:mediapipe"),
        "4:21: 'pypi:mediapipe': expected pypi:NAME==VERSION!MEMBER",
    ),
    "platform_of_a_file": (
        model("platform: manylinux_2_28_x86_64"),
        "4:41: 'platform' is for pypi: sources only",
    ),
    "missing_keys": (
        "version: 1\ncampaign: c\ndelegates: {cpu: {kind: cpu}}\n",
        "1:1: missing key 'models'",
    ),
    "other_version": (
        MINIMAL.replace("version: 1", "version: 2"),
        "1:10: this farm reads version 1; write `version: 1`",
    ),
    "endless_number": (
        MINIMAL.replace("version: 1", "version: " + "9" * 100_000),
        "1:10: this farm reads version 1; write `version: 1`",
    ),
    "no_models": (
        MINIMAL.replace("\n  - {id: a, source: a.tflite}", " []"),
        "3:9: expected 1 to 2000 items, found 0",
    ),
    "bad_campaign_name": (
        MINIMAL.replace("campaign: c", "campaign: ../x"),
        "2:11: '../x': expected letters, digits and . _ + - (at most 100)",
    ),
    "control_characters": (
        MINIMAL.replace("id: a", 'id: "\\e[2J"'),
        "4:10: expected 1 to 120 printable characters",
    ),
    "alias": (
        "version: &v 1\ncampaign: *v\n",
        "1:10: anchors and aliases (&name, *name) are not allowed; write the value out",
    ),
    "billion_laughs": (
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
        "1:4: anchors and aliases (&name, *name) are not allowed; write the value out",
    ),
    "tag": (
        "version: !!python/object/apply:os.system [id]\n",
        "1:10: tags (tag:yaml.org,2002:python/object/apply:os.system) are not allowed",
    ),
    "too_deep": ("a: " + "[" * 100_000, "1:15: nested deeper than 12 levels"),
    "too_many_values": ("a: [" + "1," * 300_000 + "]", "1:99999: more than 50000 values in one file"),
    "not_a_mapping": (
        "- a\n- b\n",
        "1:1: expected keys with values (version:, campaign:, models:, ...), found a list",
    ),
    "empty_file": ("", "1:1: the file is empty; see examples/models.yaml"),
    "two_documents": (
        "a: 1\n---\nb: 1\n",
        "2:1: not valid YAML: expected a single document in the stream but found another document",
    ),
    "not_yaml": (
        "a: [1,\nb: 2",
        "2:5: not valid YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'",
    ),
    "not_text": (b"version: 1\nid: \xff\xfe", "2:5: not UTF-8 text; is this a YAML file?"),
    "nul": ("version: 1\na: \0", "2:4: character 0 is not allowed in YAML"),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_line_and_column(
    tmp_path: Path, text: str | bytes, expected: str
) -> None:
    assert expected in mistakes(tmp_path, text)


def test_all_mistakes_are_listed_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = mistakes(tmp_path, MINIMAL.replace("version: 1", "version: 3").replace("kind: cpu", "kind: cp"))
    assert [line.split(":")[0] for line in found] == ["1", "6"]


def test_mistakes_between_places_are_found_beside_mistakes_of_form(tmp_path: Path) -> None:
    text = """\
version: 3
campaign: c
levle: quick
models:
  - {id: a, source: a.tflite, sha256: abc, measure: {blocks: {min: 9, mx: 9}}}
  - {id: a, source: a.tflite, accuracy: {metric: top1}}
  - {id: b}
delegates:
  cpu: {kind: cpu, threads: [1, many], thread: 2}
exclude: [{delegate: cpu-t2}, {model: aa}]
baseline: {delegate: gpu}
"""
    places = " ".join(":".join(line.split(":")[:2]) for line in mistakes(tmp_path, text))
    assert places == "1:10 3:1 5:39 5:53 5:71 6:10 6:41 7:5 9:33 9:40 10:22 11:22"


def test_a_file_with_very_many_mistakes_names_twenty_of_them(tmp_path: Path) -> None:
    found = mistakes(tmp_path, MINIMAL + "".join(f"unknown{i}: 1\n" for i in range(50)))
    assert len(found) == 21
    assert found[-1] == " and 30 mistakes more"


def test_what_no_message_can_carry_is_refused_in_the_file(tmp_path: Path) -> None:
    assert Whole().read(yaml.compose(str(2**63 - 1))) == 2**63 - 1
    with pytest.raises(ValueError, match="expected a whole number of at most 64 bits"):
        Whole().read(yaml.compose(str(2**63)))
    inputs = ", ".join(f"i{number}: {{shape: [1]}}" for number in range(1025))
    many = MINIMAL.replace("a.tflite}", f"a.tflite, inputs: {{{inputs}}}}}")
    assert "expected at most 1024 entries, found 1025" in mistakes(tmp_path, many)[0]
    for text in ('"a\\0b"', '"a\\x1bb"', '"\\uD800"'):
        assert "printable" in mistakes(tmp_path, MINIMAL.replace("id: a", f"id: {text}"))[0]
        named = MINIMAL.replace("a.tflite}", f"a.tflite, inputs: {{{text}: {{shape: [1]}}}}}}")
        assert "printable" in mistakes(tmp_path, named)[0]
