"""Every field of every message has a bound, and every text is clean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from agent.attempt.files import RunnerResult
from agent.devices import ProbeReport
from agent.wire import bounded, measurement, messages
from agent.wire.measurement import Delegation, Fallback
from agent.wire.messages import (
    AgentHello,
    Device,
    JobResult,
    Reason,
    ReasonCode,
    RunnerOutput,
    Status,
    decode_for_orchestrator,
    encode,
)

WIRE = {
    "to an agent": messages.ToAgent,
    "to the farm": messages.ToOrchestrator,
    "a runner's result": RunnerResult,
    "the probe's answer": ProbeReport,
    "samples of a process": measurement.ProcessSamples,
}
LARGEST_INTEGER = 2**63 - 1
DEVICE = Device(
    device_id="rack.gpu-0",
    kind="gpu",
    api="opencl",
    name="H200",
    delegates=("gpu",),
    exclusion_group="host",
    environment={"driver": "550"},
)
HELLO = AgentHello(agent_id="rack", host="rack", version="1", devices=(DEVICE,))
HOSTILE = "a\0b\x1b[31m\x7f\x9f\ud800"


def result(**fields: Any) -> JobResult:
    values = {"attempt_id": "a1", "epoch": 1, "cell_id": "c1", "device_id": "rack.gpu-0"}
    return JobResult.model_validate(values | {"status": Status.FAILED} | fields)


def parts(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every part of a JSON schema that describes a value, with the way to it."""
    if isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from parts(inner, f"{path}[{index}]")
    elif isinstance(schema, dict):
        if "type" in schema or "enum" in schema or "const" in schema:
            yield path, schema
        for name, inner in schema.items():
            if name not in ("default", "discriminator", "enum", "const", "required"):
                yield from parts(inner, f"{path}.{name}")


def unbounded(part: dict[str, Any]) -> str:
    """Describe the unbounded part of this value's schema; empty if there is none."""
    if "enum" in part or "const" in part:
        return ""
    match part["type"]:
        case "string":
            return "" if "maxLength" in part else "its length"
        case "array":
            return "" if "maxItems" in part else "its length"
        case "integer":
            low, high = part.get("minimum"), part.get("maximum", part.get("exclusiveMaximum"))
            return "" if low is not None and high is not None and high <= LARGEST_INTEGER else "its size"
        case "object" if part.get("additionalProperties") is not False:
            named = "maxLength" in part.get("propertyNames", {})
            return "" if "maxProperties" in part and named else "its size or its names"
        case "object" | "number" | "boolean" | "null":
            return ""
    return f"an unknown type {part['type']}"


@pytest.mark.parametrize("name", WIRE)
def test_every_field_of_a_message_is_bounded(name: str) -> None:
    schema = TypeAdapter(WIRE[name]).json_schema()
    found = [(path, part) for path, part in parts(schema, "") if not path.endswith(".properties")]
    assert len(found) > 10, "the schema is walked"
    assert [f"{path}: {what}" for path, part in found if (what := unbounded(part))] == []


def test_the_walk_finds_what_is_not_bounded() -> None:
    for kind in (str, int, tuple[int, ...], dict[str, bool], list[bounded.Text]):
        schema = TypeAdapter(kind).json_schema()
        assert any(unbounded(part) for _, part in parts(schema, "")), kind


@given(st.text(st.characters(categories=None), max_size=40))
def test_every_text_of_a_message_can_be_encoded_and_holds_no_control_character(text: str) -> None:
    message = result(
        reason=Reason(code=ReasonCode.MODEL_FORMAT, text=text),
        environment={text[:20]: text},
        facts={"fact": text},
        log_tail=text,
    )
    again = decode_for_orchestrator(encode(message))
    assert again == message
    assert isinstance(again, JobResult)
    texts = [
        again.reason.text if again.reason else "",
        again.log_tail,
        *again.environment,
        *again.facts.values(),
    ]
    for found in texts:
        assert all(letter in "\t\n\r" or not 0 <= ord(letter) < 32 for letter in found)
        assert len(found) == len(text) or found == bounded.clean(text[:20]) or found == "fact"


def test_what_a_text_must_not_hold_is_replaced_visibly_wherever_it_stands() -> None:
    seen = "a�b�[31m���"
    dirty = DEVICE.model_dump() | {
        "name": HOSTILE,
        "environment": {HOSTILE: HOSTILE},
        "facts": {"f": HOSTILE},
    }
    device = Device.model_validate(dirty)
    assert (device.name, device.environment, device.facts) == (seen, {seen: seen}, {"f": seen})
    fallback = Fallback(index=0, op=HOSTILE, reason=HOSTILE)
    assert (fallback.op, fallback.reason) == (seen, seen)
    assert result(log_tail=f"line\r\n\t{HOSTILE}").log_tail == f"line\r\n\t{seen}"


def test_a_text_from_the_wire_is_cleaned_too() -> None:
    line = encode(result(log_tail="a-b")).replace(b"a-b", rb"a\u0000b")
    again = decode_for_orchestrator(line)
    assert isinstance(again, JobResult)
    assert again.log_tail == "a�b"


def test_a_piece_of_output_keeps_its_length() -> None:
    piece = RunnerOutput(attempt_id="a", epoch=1, start=0, text=HOSTILE)
    assert len(piece.text) == len(HOSTILE)


@given(st.integers(-2, 3), st.sampled_from(["", "x", "ü", "\0"]))
def test_a_long_text_is_shortened_and_says_so(beyond: int, letter: str) -> None:
    text = (letter or "y") * (bounded.MAX_TEXT + beyond)
    kept = Reason(code=ReasonCode.CRASH, text=text).text
    assert len(kept) == min(len(text), bounded.MAX_TEXT)
    assert kept.endswith("…") == (beyond > 0)


def hello(**fields: Any) -> bytes:
    return json.dumps(HELLO.model_dump(mode="json") | fields).encode()


AT_THE_BOUND: dict[str, Any] = {
    "agent_id": "a" * bounded.MAX_ID,
    "protocol": 2**31 - 1,
    "devices": [DEVICE.model_dump(mode="json")] * bounded.MAX_DEVICES,
    "missing": [{"kind": "k", "reason": "r"}] * bounded.MAX_KINDS,
    "live": ["a"] * bounded.MAX_ATTEMPTS,
    "epochs": {str(number): bounded.MAX_SEEN_EPOCH for number in range(bounded.MAX_EPOCHS)},
}
BEYOND_IT: dict[str, list[Any]] = {
    "agent_id": ["a" * (bounded.MAX_ID + 1), "", "a b", "a\n", "ä"],
    "protocol": [2**31, -1],
    "devices": [[DEVICE.model_dump(mode="json")] * (bounded.MAX_DEVICES + 1)],
    "missing": [[{"kind": "k", "reason": "r"}] * (bounded.MAX_KINDS + 1)],
    "live": [["a"] * (bounded.MAX_ATTEMPTS + 1)],
    "epochs": [
        {str(number): 1 for number in range(bounded.MAX_EPOCHS + 1)},
        {"rack.gpu-0": bounded.MAX_SEEN_EPOCH + 1},
        {"rack.gpu-0": 2**64},
        {"x" * (bounded.MAX_ID + 1): 1},
    ],
}


@pytest.mark.parametrize("field", AT_THE_BOUND)
def test_a_hello_is_taken_at_its_bounds_and_refused_beyond_them(field: str) -> None:
    assert decode_for_orchestrator(hello(**{field: AT_THE_BOUND[field]})).type == "hello"
    for value in BEYOND_IT[field]:
        with pytest.raises(ValueError, match=field):
            decode_for_orchestrator(hello(**{field: value}))


def test_a_report_of_the_largest_models_fits_into_a_message() -> None:
    reason = "DEPTHWISE_CONV_2D: a filter of 1x129x129x4096 with dilation 3 is not supported on this device"
    fallbacks = tuple(
        Fallback(index=index, op="DEPTHWISE_CONV_2D", reason=reason) for index in range(bounded.MAX_FALLBACKS)
    )
    report = Delegation(
        status="none", delegated_ops=0, total_ops=len(fallbacks), partitions=0, fallbacks=fallbacks
    )
    assert len(report.model_dump_json()) < 2 * 1024 * 1024


@pytest.mark.parametrize("number", [-1.0, 5e-324, 1e300])
def test_no_figure_of_a_result_makes_what_is_computed_of_it_overflow(number: float) -> None:
    """One such result of one agent, and nobody's pages or results could be written any more."""
    times: dict[str, Any] = dict.fromkeys(("init", "init_warm", "first", "p50", "p90", "p99", "mean"), 0.0)
    assert measurement.Latency(**times, ci95=(0.0, 1.0)).p50 == 0
    for odd in (times | {"p50": number, "ci95": None}, times | {"ci95": (number, 1.0)}):
        with pytest.raises(ValueError, match="expected"):
            measurement.Latency(**odd)


def test_no_logarithm_of_a_result_is_beyond_the_power_of_which_it_is() -> None:
    assert measurement.BlockFigure(p50_ns=1.0, rounds=1, log_ratio=-0.5).log_ratio == -0.5
    for odd in (-1e9, 70.0):
        with pytest.raises(ValueError, match="expected a logarithm"):
            measurement.BlockFigure(p50_ns=1.0, rounds=1, log_ratio=odd)
    with pytest.raises(ValueError, match="expected a logarithm"):
        measurement.Quality(allowance=1e9)
