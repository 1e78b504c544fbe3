"""`farm model plan`: what it says is what the delegate does, in every form; what it cannot do is one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.choose.kept_choices import KeptChoices
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.plan import PlannedDevice, Planner
from runtime.errors import DelegateError
from runtime.model.reader import read_model
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.skeleton import restore_skeleton
from runtime.tools.model_plan import document, dot, lines, model_plan, occupancy, planner_of
from runtime.tools.verbs import model_verbs
from tests.needs import REPOSITORY
from tests.runtime.demo_models import demo_model
from tests.runtime.models import Builder
from tests.runtime.tools.plan_models import convolution, small_network, two_partitions

BOTH = {"max_delegated_partitions": 2, "cost_aware_partitioning": False}
ZOO = REPOSITORY / "examples" / "zoo"
DOCUMENT = REPOSITORY / "docs" / "model-plan.md"

VALUES = {"full", "partial", "none", "cpu", "constant", "delegate", "rule", "tuning"}
"""What the manual quotes that is no field, or one besides."""


def planned(data: bytes, device_class="cpu", **options):
    return model_plan(read_model(data), planner_of("gpu", options, device_class))


@pytest.fixture(scope="module")
def mobilenet():
    return planned(demo_model("torchvision_mobilenet_v2"), "gpu")


def asked(*arguments: str, path: Path | None = None):
    return CliRunner().invoke(model_verbs(), ["plan", *([str(path)] if path else []), *arguments])


def test_the_text_of_a_small_model():
    text = "\n".join(lines(planned(small_network()), "small.tflite"))
    assert text == (Path(__file__).parent / "plan_of_small_network.txt").read_text(encoding="utf-8").rstrip(
        "\n"
    )


@pytest.mark.parametrize("options", [BOTH, {**BOTH, "max_delegated_partitions": 1, "precision": "fp16"}])
def test_a_plan_has_the_kernels_and_the_places_of_what_runs(options):
    """Functions, offsets in the arena and constants are those that the delegate records on this machine."""
    options = {**options, "tuning": "none", "persistent": "off"}
    plan = planned(two_partitions(), None, **options)
    partitions = []

    class Watched(GpuDelegate):
        def compile(self, partition):
            compiled = super().compile(partition)
            partitions.append(compiled)
            return compiled

    interpreter = Interpreter(model_content=two_partitions(), experimental_delegates=[Watched(options)])
    interpreter.allocate_tensors()
    assert len(plan.partitions) == len(partitions) == options["max_delegated_partitions"]
    for told, ran in zip(plan.partitions, partitions, strict=True):
        assert [launch.function for launch in told.launches] == list(ran.recording.names)
        assert told.constant_bytes == ran.recording.constant_bytes
        for launch, row in zip(told.launches, ran.recording.rows, strict=True):
            offsets = [argument.offset // 64 for argument in launch.arguments]
            assert offsets == row[1 : 1 + len(offsets)]
    assert str(interpreter.delegation) == str(plan.report)
    interpreter.close()


@pytest.mark.parametrize("name", ["torchvision_mobilenet_v2", "torchvision_mobilenet_v2__static_int8"])
def test_every_operator_of_a_real_model_has_one_place(name):
    plan = planned(demo_model(name))
    (partition,) = plan.partitions
    in_nodes = {operator for node in partition.nodes for operator in node.operators}
    removed = {one.operator for one in partition.removed}
    assert not in_nodes & removed
    delegated = {operator.index for operator in plan.operators if operator.place == "partition 0"}
    assert in_nodes | removed == delegated
    assert all(operator.reason for operator in plan.operators if operator.place == "cpu")
    for node in partition.nodes:
        assert {one.operator for one in node.merged} < set(node.operators) or not node.merged
        assert all(set(launch.operators) <= set(node.operators) for launch in node.launches)


def test_buffers_that_live_at_once_share_no_byte(mobilenet):
    (partition,) = mobilenet.partitions
    for one in partition.buffers:
        assert one.offset + one.bytes <= partition.arena_bytes
        for other in partition.buffers:
            together = one is not other and one.first <= other.last and other.first <= one.last
            if together:
                assert one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset


def test_what_a_pass_joins_or_removes_is_named_with_the_pass(mobilenet):
    (partition,) = mobilenet.partitions
    by = {one.by for node in partition.nodes for one in node.merged}
    assert by == {"merge_padding", "fuse_epilogue"}
    names = {mobilenet.operators[one.operator].name for node in partition.nodes for one in node.merged}
    assert names == {"PAD", "ADD"}
    assert [(mobilenet.named(one.operator), one.by) for one in partition.removed] == [
        ("0 TRANSPOSE", "assign_layouts")
    ]


def test_the_count_for_a_large_gpu_is_of_its_launches(mobilenet):
    found = occupancy(mobilenet)
    assert found is not None
    items = sorted(launch.work_items for launch in mobilenet.partitions[0].launches)
    assert found.median_work_items == np.median(items)
    assert found.small == sum(count < 10_000 for count in items)
    small = [one.flops for one in mobilenet.partitions[0].launches if one.work_items < 10_000]
    assert found.small_flops == sum(small) <= found.flops
    assert len(found.small_launches) == found.small
    assert [one.flops for one in found.small_launches] == sorted(small, reverse=True)
    assert sum(one.share for one in found.small_launches) == pytest.approx(found.small_share)
    assert found.resident_threads == 132 * 2048 == 270_336
    assert occupancy(planned(small_network())) is None


def test_an_operator_on_the_cpu_stands_with_its_reason_between_the_partitions():
    plan = planned(two_partitions(), **BOTH)
    assert [step.on_cpu for step in plan.steps] == [False, True, False]
    (left,) = [operator for operator in plan.operators if operator.place == "cpu"]
    assert (left.name, left.reason) == ("REVERSE_SEQUENCE", "no OpenCL kernel for this operator")
    text = "\n".join(lines(plan, "two.tflite"))
    assert "2 REVERSE_SEQUENCE: no OpenCL kernel for this operator" in text


@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
def test_the_text_fits_100_columns(device_class, mobilenet):
    plans = [planned(two_partitions(), device_class, **BOTH), mobilenet]
    for plan in plans:
        assert [line for line in lines(plan, "x" * 300 + ".tflite") if len(line) > 100] == []


def test_the_document_has_the_fields_that_the_manual_names():
    """No field without a line in the manual, and none there that is gone."""
    found = json.loads(json.dumps(document(planned(two_partitions(), "gpu", **BOTH), "two.tflite")))
    names: set[str] = set()

    def collect(part, path=""):
        if isinstance(part, dict):
            for key, value in part.items():
                if path != "settings":
                    names.add(key)
                collect(value, key)
        elif isinstance(part, list):
            for value in part:
                collect(value, path)

    collect(found)
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text[text.index("## The document") :]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    told = set(re.findall(r"`(\w+)`", "\n".join(rows)))
    assert names - VALUES == told - VALUES - {"failure"}
    assert found["schema"] == 1
    nodes = [node for step in found["steps"] if "plan" in step for node in step["plan"]["nodes"]]
    assert found["totals"]["launches"] == sum(len(node["launches"]) for node in nodes) > 0


def parsed(text: str) -> tuple[set[str], list[tuple[str, str]]]:
    """Nodes and edges of a graph in Graphviz's language; fails for what its grammar does not have."""
    label = r'"(?:[^"\\\n]|\\.)*"'
    attributes = rf"(?: \[\w+=(?:{label}|\w+)(?:, ?\w+=(?:{label}|\w+))*\])?"
    statements = {
        "edge": rf"(\w+) -> (\w+){attributes};",
        "setting": rf"label={label};(?: labelloc=t;)?",
        "default": rf"node{attributes}; edge{attributes};",
        "node": rf"(\w+){attributes};",
        "open": r"(?:digraph plan|subgraph cluster_\d+) \{",
        "close": r"\}",
    }
    nodes, edges, depth = set(), [], 0
    for line in text.splitlines():
        kinds = {kind: re.fullmatch(rule, line.strip()) for kind, rule in statements.items()}
        kind, match = next(((k, m) for k, m in kinds.items() if m), ("", None))
        assert match, line
        if kind == "edge":
            edges.append((match[1], match[2]))
        elif kind == "node":
            nodes.add(match[1])
        depth += (kind == "open") - (kind == "close")
    assert depth == 0
    return nodes, edges


def hostile_names() -> bytes:
    b = Builder()
    x = b.input(np.float32, (1, 4, 4, 16), name='a"; } evil\n\\')
    return b.write([convolution(b, x, 16, 16, 1)])


@pytest.mark.parametrize("data", [small_network, two_partitions, hostile_names])
def test_the_graph_is_graphvizs_language_and_joins_what_it_declares(data):
    text = "\n".join(dot(planned(data(), **BOTH), "a model.tflite"))
    nodes, edges = parsed(text)
    assert edges
    assert {end for edge in edges for end in edge} == nodes
    if shutil.which("dot"):
        drawn = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True, check=False)
        assert (drawn.returncode, drawn.stderr) == (0, "")


def test_without_an_opencl_device_a_plan_is_assumed_and_says_so(tmp_path):
    path = tmp_path / "net.tflite"
    path.write_bytes(small_network())
    command = [str(Path(sys.executable).with_name("farm")), "model", "plan", str(path), "--json"]
    environment = {**os.environ, "OCL_ICD_VENDORS": str(tmp_path), "FARM_CACHE_DIR": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    device = json.loads(ran.stdout)["device"]
    assert device["is_assumed"]
    assert "no OpenCL device was found" in device["note"]


def test_planning_compiles_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path))
    path = tmp_path / "net.tflite"
    path.write_bytes(small_network())
    told = asked("--option", "precision=fp16", path=path)
    assert told.exit_code == 0, told.output
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [path]


def test_a_skeleton_is_planned_as_the_model_it_stands_for():
    told = asked("--device-class", "gpu", path=REPOSITORY / "examples/zoo/torchvision_mobilenet_v2.skel")
    assert told.exit_code == 0, told.output
    assert "70 of 70 operators in 1 partition(s)" in told.output
    assert "NVIDIA H200 (assumed, class gpu)" in told.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--delegate", "gpux"], "no delegate named 'gpux'"),
        (["--delegate", "cpu"], "is the interpreter itself"),
        (["--delegate", "litert"], "LiteRT tells no plan"),
        (["--option", "presicion=fp16"], "did you mean 'precision'?"),
        (["--option", "precision"], "not of the form NAME=VALUE"),
        (["--option", "weights=stored", "--option", "weights=stored"], "given twice"),
        (["--threads", "2", "--option", "threads=1"], "given twice"),
        (["--json", "--dot"], "two forms"),
        (["--tuned", "--device-class", "gpu"], "kept times belong to a device"),
        (["--option", "require_full_delegation=true"], "Disallowed CPU fallback detected."),
    ],
)
def test_what_cannot_be_planned_ends_with_2_and_one_line(tmp_path, arguments, said):
    path = tmp_path / "net.tflite"
    path.write_bytes(two_partitions())
    told = asked(*arguments, path=path)
    assert told.exit_code == 2
    assert said in told.stderr
    assert (told.stdout, len(told.stderr.splitlines())) == ("", 1)


def test_a_file_that_is_not_there_ends_with_2_and_one_line(tmp_path):
    told = asked(path=tmp_path / "absent.tflite")
    assert (told.exit_code, told.stdout) == (2, "")
    assert told.stderr.splitlines() == [f"error: {tmp_path / 'absent.tflite'}: No such file or directory"]


def test_the_delegates_planner_follows_the_protocol_and_runs_nothing():
    planner = planner_of("gpu", {}, "gpu")
    assert isinstance(planner, Planner)
    assert isinstance(planner.device, PlannedDevice)
    with pytest.raises(DelegateError, match="cannot run; open the model with the delegate itself"):
        planner.compile(type("", (), {"operators": ()})())


def test_a_model_whose_rest_cannot_run_at_all_is_planned_and_says_so():
    b = Builder()
    x = b.input(np.float32, (1, 8, 8, 16))
    y = b.tensor(np.float32, (1, 8, 8, 16))
    b.operator(Op.CUSTOM, [convolution(b, x, 16, 16, 1)], [y], custom_code="FlexWhatever")
    plan = planned(b.write([y]), cost_aware_partitioning=False)
    assert "FlexWhatever" in plan.obstacle
    assert [len(partition.launches) for partition in plan.partitions] == [1]


def test_a_tuned_plan_takes_what_an_earlier_start_kept_and_marks_it(tmp_path, monkeypatch):
    b = Builder()
    # Winograd's transformation of either size is worth a trial, whatever the width of vectors.
    x = b.input(np.float32, (1, 14, 14, 64))
    data = b.write([convolution(b, x, 64, 64, 3, side=14)])
    options = {"cache_dir": str(tmp_path), "tuning": "exhaustive"}

    def chosen(*, is_tuned: bool):
        plan = model_plan(read_model(data), planner_of("gpu", options, is_tuned=is_tuned))
        (node,) = (node for partition in plan.partitions for node in partition.nodes)
        return node.candidate, node.chosen, "*" in "".join(lines(plan, "x.tflite"))

    by_rule = chosen(is_tuned=False)
    assert chosen(is_tuned=True) == by_rule == (by_rule[0], "rule", False)
    shortlisted = KeptChoices.allowed

    def remembering(kept, alternatives):
        found = shortlisted(kept, alternatives)
        for node in found:
            kept.remember(kept.key(node), next(each.name for each in node if each.name != by_rule[0]))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(KeptChoices, "allowed", remembering)
        chosen(is_tuned=True)
    name, by, is_marked = chosen(is_tuned=True)
    assert (name != by_rule[0], by, is_marked) == (True, "tuning", True)
    assert chosen(is_tuned=False) == by_rule


@pytest.mark.exhaustive
@pytest.mark.parametrize("device_class", ["cpu", "gpu"])
@pytest.mark.parametrize(
    "skeleton", sorted((REPOSITORY / "examples/zoo").glob("*.skel")), ids=lambda p: p.stem
)
def test_every_model_of_the_zoo_has_a_plan_in_every_form(skeleton, device_class):
    model = read_model(restore_skeleton(skeleton.read_bytes()))
    plan = model_plan(model, planner_of("gpu", {"max_delegated_partitions": 9}, device_class))
    for number, partition in enumerate(plan.partitions):
        found = {operator for node in partition.nodes for operator in node.operators}
        found |= {one.operator for one in partition.removed}
        assert found == {one.index for one in plan.operators if one.place == f"partition {number}"}
        assert partition.shortage == ""
    assert all(operator.reason for operator in plan.operators if operator.place == "cpu")
    assert [line for line in lines(plan, skeleton.name) if len(line) > 100] == []
    nodes, edges = parsed("\n".join(dot(plan, skeleton.name)))
    assert {end for edge in edges for end in edge} <= nodes
    assert json.loads(json.dumps(document(plan, skeleton.name)))["totals"]["launches"] > 0
