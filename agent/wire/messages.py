"""The messages between orchestrator and agent: frozen, versioned pydantic models, JSON only.

This module imports only pydantic: reading messages must load neither the runtime nor pyopencl. The types of
the fields are in `agent.wire.bounded`: every text, number and collection has a bound.
Times ending in `_ns` are durations from a monotonic clock; names ending in `_at` are UTC wall-clock seconds.
"""

from __future__ import annotations

import hashlib
import json
import re
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    model_serializer,
)

from agent.wire.bounded import (
    MAX_ATTEMPTS,
    MAX_COUNT,
    MAX_DEVICES,
    MAX_EPOCHS,
    MAX_FACTS,
    MAX_FALLBACKS,
    MAX_INPUTS,
    MAX_KINDS,
    MAX_OUTPUTS,
    MAX_RANK,
    MAX_SAMPLES,
    MAX_WARNINGS,
    Count,
    Facts,
    Id,
    Integer,
    Key,
    Output,
    SeenEpoch,
    Sha256,
    Small,
    Text,
)

PROTOCOL_VERSION = 4
"""Version of the messages. A farm gives no jobs to an agent of another version, but tells it to upgrade."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Largest message in bytes. The largest real one is a result, at most 2 MiB from the runner and 4000 bytes of
its log; a larger bound lets a peer that sends no line end make the other side hold more memory."""


class Wire(BaseModel):
    """Base of every message part: unknown fields are errors, instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Status(StrEnum):
    """How an attempt ended; its cell gets the same state."""

    DONE = "done"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    CANCELLED = "cancelled"


class ReasonCode(StrEnum):
    """Reason for the end of an attempt, one noun each; the text beside it is for people."""

    COMPLETED = "completed"
    UNSUPPORTED_OPERATOR = "unsupported_operator"
    UNSUPPORTED_PRECISION = "unsupported_precision"
    NOT_DELEGATED = "not_delegated"
    NO_DEVICE = "no_device"
    DELEGATE_MISSING = "delegate_missing"
    NEEDS_INPUT_SPEC = "needs_input_spec"
    MODEL_FORMAT = "model_format"
    WRONG_OUTPUT = "wrong_output"
    IMPLAUSIBLE = "implausible"
    CRASH = "crash"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "oom"
    RUNNER_KILLED = "runner_killed"
    RUNNER_ERROR = "runner_error"
    INTERRUPTED = "interrupted"
    AGENT_LOST = "agent_lost"
    DEVICE_LOST = "device_lost"
    ARTIFACT = "artifact"
    CANCELLED = "cancelled"
    EXCLUDED = "excluded"


class Reason(Wire):
    """A reason code and one sentence: what happened, where, and what to do."""

    code: ReasonCode
    text: Text


FIRST_KERNEL_FACT: Final = "opencl_first_kernel_s"
"""The fact of an OpenCL device that holds the seconds from a context to the result of the smallest kernel."""
NARROW_NUMBERS_FACT: Final = "opencl_narrow_numbers"
"""The fact of an OpenCL device that lists what it was found to do with fp16 and bfloat16."""


class Device(Wire):
    """A device that models are measured on.

    `environment` holds the fields that split a series (CPU model, driver, library versions, ...);
    `facts` is recorded beside them and never hashed. Devices of one `exclusion_group` share silicon.
    """

    device_id: Id
    kind: Literal["cpu", "gpu"]
    api: Literal["host", "opencl"]
    name: Text
    vendor: Text = ""
    delegates: tuple[Id, ...] = Field(max_length=MAX_KINDS)
    exclusion_group: Id
    environment: Facts
    facts: Facts = {}
    labels: Facts = {}

    @property
    def environment_id(self) -> str:
        """First 12 hex digits of the sha256 of `environment` as canonical JSON."""
        return environment_id(self.environment)


def environment_id(environment: dict[str, str]) -> str:
    """First 12 hex digits of the sha256 of canonical JSON (sorted keys, no blanks)."""
    text = json.dumps(environment, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


SANDBOX_FACT: Final = "sandbox"
"""Fact of a device, and so of its results: what keeps a runner away from everything but its attempt."""

SANDBOX_WITHOUT_FACT: Final = "sandbox_without"
"""Fact beside `SANDBOX_FACT`: what the sandbox lacks on this host, and why; absent where it lacks nothing."""

SANDBOX_OFF: Final = "off"
"""How the text of `SANDBOX_FACT` begins where the user switched the sandbox off."""


class MissingDelegate(Wire):
    """A delegate kind that this host cannot offer, and why (`gpu`: no OpenCL platform found ...)."""

    kind: Id
    reason: Text


class LabelledData(Wire):
    """Samples of known class (docs/models-yaml.md), which a cell is run on once everything is timed.

    `at_least`: the share of right answers below which the cell fails; None: it is only reported.
    """

    sha256: Sha256
    size_bytes: int = Field(ge=1, le=MAX_COUNT)
    metric: Literal["top1", "top5"] = "top1"
    at_least: float | None = Field(default=None, ge=0, le=1)


class MeasurePlan(Wire):
    """Counts of one cell, per process, and its labelled data. Defaults: level `quick` (docs/measuring.md)."""

    level: Literal["quick", "standard", "publish"] = "quick"
    processes: int = Field(default=3, ge=1, le=20)
    warmup_runs: Count = 5
    warmup_seconds: float = Field(default=0.5, ge=0)
    min_runs: int = Field(default=30, ge=1, le=MAX_SAMPLES)
    max_runs: int = Field(default=100_000, ge=1, le=MAX_SAMPLES)
    min_seconds: float = Field(default=2.0, ge=0)
    max_seconds: float = Field(default=5.0, gt=0)
    labelled: LabelledData | None = None

    @model_serializer(mode="wrap")
    def _without_nothing(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out missing labelled data, so that the JSON of such a plan, and its series, stay the same."""
        fields: dict[str, Any] = serialise(self)
        if self.labelled is None:
            del fields["labelled"]
        return fields


class InputSpec(Wire):
    """Data of one input: `shape` resizes it; `low`, `high` and `seed` define the random values."""

    shape: tuple[Small, ...] | None = Field(default=None, max_length=MAX_RANK)
    seed: Integer = 0
    low: float | None = None
    high: float | None = None


class JobSpec(Wire):
    """One attempt at one cell: everything the agent and its runner need."""

    type: Literal["job"] = "job"
    attempt_id: Id
    attempt_no: Small
    cell_id: Id
    epoch: Small
    device_id: Id
    model_id: Text
    model_sha256: Sha256
    model_bytes: Count
    delegate: Id
    delegate_kind: Id
    delegate_options: dict[Key, Text | Integer | float | bool] = Field(default={}, max_length=MAX_FACTS)
    plan: MeasurePlan = MeasurePlan()
    inputs: dict[Key, InputSpec] = Field(default={}, max_length=MAX_INPUTS)
    soft_limit_s: float = 900.0
    hard_limit_s: float = 910.0

    @property
    def files(self) -> dict[str, int]:
        """Files that the agent's store must have, the model and labelled data: sizes in bytes by sha256."""
        data = self.plan.labelled
        more = {} if data is None else {data.sha256: data.size_bytes}
        return {self.model_sha256: self.model_bytes} | more


class Fallback(Wire):
    """An operator that stayed on the CPU."""

    index: Count
    op: Text
    reason: Text


class Delegation(Wire):
    """The delegation report of a partition delegate. `fallbacks`: the first `MAX_FALLBACKS` of them."""

    status: Literal["full", "partial", "none"]
    delegated_ops: Count
    total_ops: Count
    partitions: Count
    fallbacks: tuple[Fallback, ...] = Field(default=(), max_length=MAX_FALLBACKS)


class ProcessSamples(Wire):
    """One process that opened the model; lists are in the order of measurement, times in ns.

    The cold one, which finds empty caches, times its start alone. `init_ns` before model load to ready to
    invoke; `first_ns` the first invoke, completed; every invoke sample is host input to readable host output
    (`e2e`). `memory_peak_bytes` is the growth of VmHWM from just before the model is loaded.
    """

    index: Count
    cache: Literal["cold", "warm"]
    init_ns: Integer
    first_ns: Integer
    warmup_ns: tuple[Integer, ...] = Field(max_length=MAX_SAMPLES)
    invoke_ns: tuple[Integer, ...] = Field(max_length=MAX_SAMPLES)
    batch: Count = 1
    memory_peak_bytes: Integer
    memory_before_bytes: Integer
    flags: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    facts: Facts = {}


class Latency(Wire):
    """Summary in milliseconds. A percentile below its sample floor is null; `missing` says why, per field."""

    init: float | None
    init_warm: float | None
    first: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    mean: float | None
    ci95: tuple[float, float] | None
    missing: Facts = {}
    first_warm: float | None = None
    p95: float | None = None
    p90_ci95: tuple[float, float] | None = None
    p99_ci95: tuple[float, float] | None = None


class OutputAccuracy(Wire):
    """One output of the model, the worst figures over its input sets. `verdict` null: not judged.

    `top1`: the share of rows whose largest value is at the same place. `nonfinite` counts NaN and Inf.
    """

    name: Text
    max_abs: float | None
    mean_abs: float | None
    rel_l2: float | None
    cosine: float | None
    top1: float | None
    nonfinite: Count
    verdict: Literal["pass", "fail"] | None


class Accuracy(Wire):
    """How the outputs compare with the reference. `verdict` null: not judged, `note` says why.

    `peer_rel_l2` is the distance of LiteRT's XNNPACK from the same reference, null where it did not run.
    """

    reference: Text | None
    max_abs: float | None
    rel_l2: float | None
    cosine: float | None
    verdict: Literal["pass", "fail"] | None
    rule: Text = ""
    note: Text = ""
    mean_abs: float | None = None
    top1: float | None = None
    nonfinite: Count = 0
    peer_rel_l2: float | None = None
    outputs: tuple[OutputAccuracy, ...] = Field(default=(), max_length=MAX_OUTPUTS)


class LabelledScore(Wire):
    """How many samples of the labelled data were right. `verdict` null: no share was asked for."""

    metric: Literal["top1", "top5"]
    samples: Count
    right: Count
    share: float
    at_least: float | None = None
    verdict: Literal["pass", "fail"] | None = None


class Measurement(Wire):
    """What a runner measured. `samples_sha256` names the artifact with every `ProcessSamples` as JSON."""

    latency_ms: Latency
    samples: Count
    memory_peak_bytes: Integer
    memory_peak_cold_bytes: Integer = 0
    accuracy: Accuracy
    delegation: Delegation | None
    settings: Facts
    samples_sha256: Sha256 | None = None
    warnings: tuple[Text, ...] = Field(default=(), max_length=MAX_WARNINGS)
    labelled: LabelledScore | None = None


class AgentHello(Wire):
    """First message of an agent, and again after every break.

    `live`: attempts it has not ended yet; `epochs`: the newest epoch it has seen, by device, so that a
    database that was restored from a copy does not offer jobs that would be refused as old.
    """

    type: Literal["hello"] = "hello"
    protocol: Small = PROTOCOL_VERSION
    agent_id: Id
    host: Text
    version: Text
    devices: tuple[Device, ...] = Field(max_length=MAX_DEVICES)
    missing: tuple[MissingDelegate, ...] = Field(default=(), max_length=MAX_KINDS)
    live: tuple[Id, ...] = Field(default=(), max_length=MAX_ATTEMPTS)
    epochs: dict[Id, SeenEpoch] = Field(default={}, max_length=MAX_EPOCHS)


class AgentAlive(Wire):
    """Heartbeat of an agent, whether it has jobs or not. `waiting`: results without a receipt."""

    type: Literal["alive"] = "alive"
    waiting: Count = 0


class Heartbeat(Wire):
    """Heartbeat of a running attempt; `phase` is shown as its progress."""

    type: Literal["heartbeat"] = "heartbeat"
    attempt_id: Id
    epoch: Small
    seq: Count
    phase: Text


class JobStarted(Wire):
    """The device is leased and the runner is about to start."""

    type: Literal["started"] = "started"
    attempt_id: Id
    epoch: Small


class RunnerOutput(Wire):
    """A piece of the output of a running attempt's processes; `start` characters came before it."""

    type: Literal["output"] = "output"
    attempt_id: Id
    epoch: Small
    start: Count
    text: Output


class JobRefused(Wire):
    """The agent did not accept the job (unknown device, device busy, model missing, already seen)."""

    type: Literal["refused"] = "refused"
    attempt_id: Id
    epoch: Small
    reason: Reason


class JobResult(Wire):
    """How an attempt ended. Sent until a receipt comes back."""

    type: Literal["result"] = "result"
    attempt_id: Id
    epoch: Small
    cell_id: Id
    device_id: Id
    status: Status
    reason: Reason | None = None
    measurement: Measurement | None = None
    environment: Facts = {}
    facts: Facts = {}
    log_tail: Text = ""
    duration_ns: Integer = 0


class Receipt(Wire):
    """The result is in the database: the agent may drop its copy."""

    type: Literal["receipt"] = "receipt"
    attempt_id: Id


class CancelJob(Wire):
    """Stop this attempt; its result will be `cancelled`."""

    type: Literal["cancel"] = "cancel"
    attempt_id: Id


class Shutdown(Wire):
    """The agent is to end: stop what runs, report it as `interrupted`, exit."""

    type: Literal["shutdown"] = "shutdown"


class Upgrade(Wire):
    """The agent's protocol is not the farm's: it gets no jobs until `command` was run on its host."""

    type: Literal["upgrade"] = "upgrade"
    protocol: Small
    command: Text


ForAgent: TypeAlias = JobSpec | CancelJob | Receipt | Shutdown | Upgrade
ForOrchestrator: TypeAlias = (
    AgentHello | AgentAlive | JobStarted | JobRefused | Heartbeat | RunnerOutput | JobResult
)
ToAgent = Annotated[ForAgent, Field(discriminator="type")]
ToOrchestrator = Annotated[ForOrchestrator, Field(discriminator="type")]
_TO_AGENT: TypeAdapter[Any] = TypeAdapter(ToAgent)
_TO_ORCHESTRATOR: TypeAdapter[Any] = TypeAdapter(ToOrchestrator)


def encode(message: Wire) -> bytes:
    """Encode a message as one line of UTF-8 JSON, newline included."""
    return message.model_dump_json().encode() + b"\n"


def decode_for_agent(line: bytes) -> ForAgent:
    """Parse a line sent to an agent. Raises `ValueError` naming the field."""
    return _decode(_TO_AGENT, line)  # type: ignore[no-any-return]  # the adapter's type is the union


def decode_for_orchestrator(line: bytes) -> ForOrchestrator:
    """Parse a line sent to the orchestrator. Raises `ValueError` naming the field."""
    return _decode(_TO_ORCHESTRATOR, line)  # type: ignore[no-any-return]  # the adapter's type is the union


def _decode(adapter: TypeAdapter[Any], line: bytes) -> Any:
    if len(line) > MAX_MESSAGE_BYTES:
        raise ValueError(f"message of {len(line)} bytes; the limit is {MAX_MESSAGE_BYTES}")
    return adapter.validate_json(line)


def type_of(line: bytes) -> str:
    """Return the type of a message without validating its other fields. Raises `ValueError` without one."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
        raise ValueError("a message without a type")
    return str(fields["type"])


def artifact_path(store: Path, sha256: str) -> Path:
    """Return where a content-addressed store keeps an artifact: `<store>/sha256/ab/<64 hex digits>`."""
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError(f"not a sha256: {sha256!r}")
    return store / PurePosixPath("sha256", sha256[:2], sha256)
