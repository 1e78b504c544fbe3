"""`models.yaml` is read strictly: what it means, and every mistake with its line and column."""

from __future__ import annotations

import textwrap
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.manifest import (
    Campaign,
    DelegateEntry,
    DeviceSelector,
    ExcludeRule,
    ManifestError,
    load_manifest,
)
from orchestrator.manifest.campaign import RetryEntry
from orchestrator.manifest.document import MAX_FILE_BYTES, read_bytes
from orchestrator.manifest.problems import Problems
from orchestrator.manifest.readers import number
from orchestrator.manifest.schema import RETRIED_KINDS
from runtime.delegates.gpu.options import Options, parse_options
from runtime.delegates.litert import LiteRtOptions
from runtime.delegates.registry import delegate_descriptor
from tests.needs import REPOSITORY

BATCH_IS_A_SHAPE = (
    "a batch of 8 is the shape of an input, `inputs: {NAME: {shape: [8, ...]}}`; samples per second are 8 "
    "times `throughput.per_second`"
)
BUDGET_FORM = "expected FIGURE<=LIMIT, e.g. p50<=5ms, p99<=12.5ms, init<=2s, memory<=200MB, or ratio>=0.95"

MINIMAL = """\
version: 1
campaign: c
models:
  - {id: a, source: a.tflite}
delegates:
  cpu: {kind: cpu}
"""


def load(folder: Path, text: str | bytes) -> Campaign:
    path = folder / "models.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_manifest(path)


def mistakes(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(folder, text)
    assert caught.value.exit_code == 2
    prefix = str(folder / "models.yaml") + ":"
    lines = str(caught.value).splitlines()
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


def test_what_no_message_can_carry_is_refused_in_the_file(tmp_path: Path) -> None:
    problems = Problems("f")
    assert number(whole=True)(yaml.compose(str(2**63 - 1)), problems) == 2**63 - 1
    assert number(whole=True)(yaml.compose(str(2**63)), problems) is None
    with pytest.raises(ManifestError, match="expected a whole number of at most 64 bits"):
        problems.raise_any()
    inputs = ", ".join(f"i{number}: {{shape: [1]}}" for number in range(1025))
    many = MINIMAL.replace("a.tflite}", f"a.tflite, inputs: {{{inputs}}}}}")
    assert "expected at most 1024 entries, found 1025" in mistakes(tmp_path, many)[0]
    for text in ('"a\\0b"', '"a\\x1bb"', '"\\uD800"'):
        assert "printable" in mistakes(tmp_path, MINIMAL.replace("id: a", f"id: {text}"))[0]
        named = MINIMAL.replace("a.tflite}", f"a.tflite, inputs: {{{text}: {{shape: [1]}}}}}}")
        assert "printable" in mistakes(tmp_path, named)[0]


def test_the_demo_campaign_is_what_its_file_says() -> None:
    campaign = load_manifest(REPOSITORY / "examples" / "models.yaml")
    assert campaign.name == "demo"
    assert campaign.level == "quick"
    assert [m.id for m in campaign.models] == [
        "face_detection_short_range",
        "face_landmark",
        "hand_landmark_lite",
        "torchvision_mobilenet_v2",
        "torchvision_mobilenet_v3_small",
        "torchvision_resnet18",
        "torchvision_squeezenet1_1",
        "torchvision_efficientnet_b0",
        "torchvision_mobilenet_v2__static_int8",
    ]
    assert [d.name for d in campaign.delegates] == ["cpu", "gpu", "litert"]
    assert campaign.baseline_delegate == "litert"
    assert campaign.reuse == "same-fingerprint"
    assert all(m.sha256 for m in campaign.models)
    assert {m.plan.min_seconds for m in campaign.models} == {2}
    assert (campaign.models[0].platform, campaign.models[0].python) == ("manylinux_2_28_x86_64", "3.11")


FULL = """\
version: 1
campaign: nightly
level: standard
labels: {team: vision, run: 7}
defaults:
  measure:
    warmup: {runs: 7, min_seconds: 0.25}
    timed: {min_runs: 50, max_runs: 1000, min_seconds: 2, max_seconds: 60}
    processes: 4
  reuse: max-age:7d
  limits: {job: 15m}
models:
  - id: a
    source: pypi:some-pkg==1.10!some/model.tflite
    platform: manylinux_2_28_x86_64
    python: 3.10
    measure: {processes: 2, timed: {max_seconds: 8.5}}
    limits: {job: 30s}
    inputs:
      image: {shape: [1, 224, 224, 3], random: {seed: 7, range: [-1, 1]}}
  - {id: b, source: zoo:b}
delegates:
  cpu: {kind: cpu, threads: [1, 4]}
  gpu: {kind: gpu, precision: fp32}
devices:
  - {kind: gpu, vendor: nvidia, labels: {room: a}}
  - {name: cpu-*}
exclude: [{model: "b", delegate: "cpu-*"}]
baseline: {delegate: cpu-t4, against: {campaign: weekly~1}}
"""


def test_every_key_of_the_schema_reaches_the_campaign(tmp_path: Path) -> None:
    campaign = load(tmp_path, FULL)
    first, second = campaign.models
    assert campaign.labels == {"team": "vision", "run": "7"}
    assert campaign.reuse == "max-age:604800"
    assert first.python == "3.10"
    assert (first.plan.level, first.plan.processes) == ("standard", 2)
    assert (first.plan.warmup_runs, first.plan.warmup_seconds) == (7, 0.25)
    assert (first.plan.min_runs, first.plan.max_runs) == (50, 1000)
    assert (first.plan.min_seconds, first.plan.max_seconds) == (2, 8.5)
    assert (second.plan.processes, second.plan.max_seconds) == (4, 60)
    assert (first.soft_limit_s, second.soft_limit_s) == (30, 900)
    image = first.inputs["image"]
    assert (image.shape, image.seed, image.low, image.high) == ((1, 224, 224, 3), 7, -1, 1)
    assert campaign.delegates == (
        DelegateEntry("cpu-t1", "cpu", {"threads": 1}),
        DelegateEntry("cpu-t4", "cpu", {"threads": 4}),
        DelegateEntry("gpu", "gpu", {"precision": "fp32"}),
    )
    assert campaign.devices == (
        DeviceSelector(kind="gpu", vendor="nvidia", labels={"room": "a"}),
        DeviceSelector(name="cpu-*"),
    )
    assert campaign.exclude == (ExcludeRule(model="b", delegate="cpu-*"),)
    assert (campaign.baseline_delegate, campaign.against) == ("cpu-t4", "weekly~1")


def test_a_model_says_how_long_it_waits_what_is_tried_again_and_what_it_reuses(tmp_path: Path) -> None:
    own = "limits: {queue: 2h}, reuse: never, retry: {kinds: [crash]}"
    defaults = "defaults: {limits: {job: 1m, queue: 1d}, retry: {times: 0}, reuse: same-fingerprint}"
    one = load(tmp_path, model(own) + defaults + "\n").models[0]
    assert (one.soft_limit_s, one.queue_limit_s, one.reuse) == (60.0, 7200.0, "never")
    assert one.retry == RetryEntry(0, ("crash",))
    bare = load(tmp_path, MINIMAL).models[0]
    assert (bare.queue_limit_s, bare.reuse, bare.retry) == (None, None, None)


def test_the_hash_of_a_campaign_is_that_of_its_file(tmp_path: Path) -> None:
    one = load(tmp_path, MINIMAL).manifest_sha256
    assert load(tmp_path, MINIMAL).manifest_sha256 == one
    assert load(tmp_path, MINIMAL + "# a remark\n").manifest_sha256 != one


def model(fields: str) -> str:
    return MINIMAL.replace("{id: a, source: a.tflite}", "{id: a, source: a.tflite, " + fields + "}")


def added(lines: str) -> str:
    return MINIMAL + textwrap.dedent(lines)


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
        model("measure: {target_ci: 2%}"),
        "4:41: key 'target_ci' is not supported by this version",
    ),
    "batch_is_a_shape": (
        model("measure: {batch: 8}"),
        "4:41: key 'batch' does not belong here; " + BATCH_IS_A_SHAPE,
    ),
    "sustained_for_no_time": (model("measure: {sustained: {}}"), "4:52: missing key 'minutes'"),
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
    "list_for_mapping": (added("labels: [a]"), "7:9: expected keys with values, found a list"),
    "text_for_list": (added("devices: all"), "7:10: expected a list, found text 'all'"),
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
        model("measure: {processes: 0}"),
        "4:52: expected a whole number at least 1 at most 20, found 0",
    ),
    "fraction_for_count": (
        model("measure: {processes: 1.5}"),
        "4:52: expected a whole number at least 1 at most 20, found a number '1.5'",
    ),
    "minimum_over_maximum": (
        model("measure: {timed: {min_seconds: 9}}"),
        "4:40: timed.min_seconds 9 exceeds timed.max_seconds 5 (level quick); set timed.max_seconds too",
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


def test_a_file_with_very_many_mistakes_names_twenty_of_them(tmp_path: Path) -> None:
    found = mistakes(tmp_path, MINIMAL + "".join(f"unknown{i}: 1\n" for i in range(50)))
    assert len(found) == 21
    assert found[-1] == " and 30 mistakes more"


@pytest.mark.parametrize("content", [b"a" * (1024 * 1024 + 1), b"a: [" * 500_000])
def test_a_file_over_one_mebibyte_is_refused_unread(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "models.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="larger than 1048576 bytes"):
        load_manifest(path)


def test_a_file_of_just_one_mebibyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_bytes(b" " * MAX_FILE_BYTES)
    assert len(read_bytes(path)) == MAX_FILE_BYTES


def test_a_missing_file_and_a_folder_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_manifest(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_manifest(tmp_path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_files_end_in_a_campaign_or_in_one_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(FULL.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        end = data.draw(st.integers(start, min(len(content), start + 8)))
        content[start:end] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"[", b"{", b"&a ", b"*a", b": "])
        )
    with suppress(UsageError):
        assert load(tmp_path, bytes(content)).models


def test_the_options_that_a_file_may_use_are_those_of_the_delegates(tmp_path: Path) -> None:
    def accepted(line: str) -> dict[str, object]:
        (entry,) = load(tmp_path, MINIMAL.replace("cpu: {kind: cpu}", line)).delegates
        return dict(entry.options)

    farms_own = {"backend", "device", "cache_dir", "serialization_dir", "model_token"} | {
        "context",
        "wait_type",
        "excluded_operators",
        "conformance",
        "kept_plans",
    }
    given = accepted(
        "x: {kind: gpu, threads: 2, precision: fp32, precision_loss_allowed: true, "
        "weights: stored, tuning: none, choices: 0123456789ab=rows, persistent: off, "
        "device_class: auto, memory: least, passes_off: fuse_swish, "
        "max_delegated_partitions: 3, min_nodes_per_partition: 2, first_delegate_node_index: 0, "
        "cost_aware_partitioning: false, enable_quantization: false, deadline_ms: 500, "
        "last_delegate_node_index: 9, require_full_delegation: true}"
    )
    assert given.keys() == {field.name for field in fields(Options)} - farms_own
    assert asdict(parse_options(given)).items() >= given.items()
    given = accepted("x: {kind: litert, threads: 2, resolver: builtin}")
    assert asdict(LiteRtOptions.parse(given)) == given


DOCUMENT = (REPOSITORY / "docs" / "models-yaml.md").read_text(encoding="utf-8")


def test_the_documented_file_is_valid(tmp_path: Path) -> None:
    campaign = load(tmp_path, DOCUMENT.split("```yaml\n")[1].split("```")[0])
    assert [d.name for d in campaign.delegates] == ["cpu-t1", "cpu-t2", "gpu", "litert"]


@pytest.mark.parametrize("kind", ["cpu", "gpu", "litert", "litert-gpu", "openvino"])
def test_the_table_of_options_is_what_the_descriptors_declare(kind: str) -> None:
    declared = [
        f"| `{kind}` | `{name}` | {option.values} | {_shown(option.default)} | {option.help} |"
        for name, option in delegate_descriptor(kind).options.items()
    ]
    assert [line for line in DOCUMENT.splitlines() if line.startswith(f"| `{kind}` |")] == declared


def _shown(default: object) -> str:
    return "" if default is None else str(default).lower()
