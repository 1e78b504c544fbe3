"""`outputs:` says what a model's outputs are; it is a part of the plan, and so of the series."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.wire.plan import MeasurePlan, OutputSpec
from tests.orchestrator.manifest.manifests import MINIMAL, load, mistakes, model


def test_kinds_reach_the_plan(tmp_path: Path) -> None:
    text = model("outputs: {ids: {kind: index}, b: {kind: detections, role: boxes}}")
    plan = load(tmp_path, text).models[0].plan
    assert plan.outputs == (
        OutputSpec(name="ids", kind="index"),
        OutputSpec(name="b", kind="detections", role="boxes"),
    )
    assert MeasurePlan.model_validate_json(plan.model_dump_json()) == plan


def test_a_plan_without_kinds_is_written_as_before(tmp_path: Path) -> None:
    assert "outputs" not in load(tmp_path, MINIMAL).models[0].plan.model_dump(mode="json")


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ("{a: {kind: indices}}", "unknown kind of output 'indices'; did you mean 'index'"),
        ("{a: {kind: detections}}", "`role` belongs to `kind: detections`, which needs it"),
        ("{a: {kind: index, role: boxes}}", "`role` belongs to `kind: detections`, which needs it"),
        ("{a: {role: boxes}}", "kind"),
        ("{a: {kind: detections, role: box}}", "did you mean 'boxes'"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, outputs: str, text: str) -> None:
    (found,) = mistakes(tmp_path, model(f"outputs: {outputs}"))
    assert text in found
