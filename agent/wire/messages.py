"""The messages between orchestrator and agent: frozen, versioned pydantic models, JSON only.

This module imports only pydantic: reading messages must load neither the runtime nor pyopencl. The types of
the fields are in `agent.wire.bounded`: every text, number and collection has a bound.
Times ending in `_ns` are durations from a monotonic clock; names ending in `_at` are UTC wall-clock seconds.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from agent.wire.bounded import (
    MAX_ARMS,
    MAX_ATTEMPTS,
    MAX_DEVICES,
    MAX_EPOCHS,
    MAX_FACTS,
    MAX_INPUTS,
    MAX_KINDS,
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
    Wire,
)
from agent.wire.measurement import Measurement, Refinement
from agent.wire.plan import InputSpec, MeasurePlan
from agent.wire.reference import MAX_KNOWN, MAX_MADE, ReferenceRecord

PROTOCOL_VERSION = 17
"""Version of the messages, those between an agent's processes included: one may be of another commit. A farm
gives no jobs to an agent of another version, but tells it to upgrade."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Largest message in bytes. The largest real one is a result, at most 2 MiB from the runner and 4000 bytes of
its log; a larger bound lets a peer that sends no line end make the other side hold more memory."""


class Status(StrEnum):
    """The final state of an attempt; its cell gets the same state."""

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
    LABELLED_DATA = "labelled_data"
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
    QUEUE_LIMIT = "queue_limit"
    CONDITIONS_CHANGED = "conditions_changed"


class Reason(Wire):
    """A reason code and one sentence: what happened, where, and what to do."""

    code: ReasonCode
    text: Text


FIRST_KERNEL_FACT: Final = "opencl_first_kernel_s"
"""The fact of an OpenCL device that holds the seconds from a context to the result of the smallest kernel."""
NARROW_NUMBERS_FACT: Final = "opencl_narrow_numbers"
"""The fact of an OpenCL device that lists what it was found to do with fp16 and bfloat16."""
CONFORMANCE_FACT: Final = "opencl_conformance"
"""The fact of an OpenCL device that says what a check of its operators found; absent before the first one."""
WRONG_OPERATORS_FACT: Final = "opencl_wrong_operators"
"""The fact of an OpenCL device that names the operators, with commas between them, that a check found to
differ from the CPU path; the name is also that by which the delegate's descriptor asks for them."""
HOST_TUNING_FACT: Final = "host_tuning"
"""The fact that says which settings of the host `farm-agent tuning` has changed, and from what."""
IN_THE_WAY_FACT: Final = "opencl_in_the_way"
"""The fact of an OpenCL device that names layers and debug output in front of its driver."""


INTERFACE_OPTION: Final = "backend"
"""The option by which a delegate is told the interface through which it reaches its device."""


RELEASE_OPTION: Final = "version"
"""The option by which a delegate is told the release of its package."""
RELEASES_REFUSED_FACT: Final = "releases_refused"
"""The fact of a host's devices that says which releases its operator's list names in vain, and why."""


INTERFACE_FACT: Final = "interface"
"""Fact of a device of an attempt, and so of its result: the interface through which it is reached."""


class Device(Wire):
    """A device that models are measured on.

    `environment` holds the fields by which results are told apart (`agent.wire.provenance`), and
    `delegate_environments` those that results of one delegate have besides, by its kind, by
    `KIND/INTERFACE` for each interface through which it reaches the device, and by `KIND@VERSION` for each
    release of its package; `facts` is recorded and never hashed. Devices of one `exclusion_group` share
    silicon. One whose `api` is `ssh` or `adb` is another machine, attached to the agent's.
    """

    device_id: Id
    kind: Literal["cpu", "gpu"]
    api: Literal["host", "opencl", "cuda", "webgpu", "ssh", "adb"]
    name: Text
    vendor: Text = ""
    delegates: tuple[Id, ...] = Field(max_length=MAX_KINDS)
    exclusion_group: Id
    environment: Facts
    facts: Facts = Field(default_factory=dict)
    labels: Facts = Field(default_factory=dict)
    delegate_environments: dict[Id, Facts] = Field(default_factory=dict, max_length=MAX_KINDS)

    @property
    def environment_id(self) -> str:
        """First 12 hex digits of the sha256 of `environment` as canonical JSON."""
        return environment_id(self.environment)

    def environment_of(self, kind: str, options: Mapping[str, Any]) -> dict[str, str]:
        """Return the environment of a delegate's results here, as far as it is known before a run."""
        return expected_environment(self.environment, self.delegate_environments, kind, options)

    def interfaces_of(self, kind: str) -> tuple[str, ...]:
        """Return the interfaces through which a delegate reaches this device, its default first; empty for a
        delegate that has no such choice.
        """
        return interfaces_of(self.delegate_environments, kind)

    def lacks(self, kind: str, options: Mapping[str, Any]) -> str | None:
        """Return why options or the release they want cannot be had on this device; None where they can."""
        releases, release = releases_of(self.delegate_environments, kind), options.get(RELEASE_OPTION)
        if releases and release is not None and release not in releases:
            others = "its operator allows others by their wheels, FARM_RUNNER_WHEELS"
            why = self.facts.get(RELEASES_REFUSED_FACT, others)
            there = ", ".join(releases)
            return f"the host of {self.device_id} has no release {release} of {kind}, but {there}: {why}"
        known, wanted = self.interfaces_of(kind), options.get(INTERFACE_OPTION)
        if not known or wanted is None or wanted in known:
            return None
        return f"{self.device_id} is not reached through {wanted} on its host, but by {', '.join(known)}"


def interfaces_of(environments: Iterable[str], kind: str) -> tuple[str, ...]:
    """Return the interfaces that names of environments (`Device.delegate_environments`) have for a kind."""
    return _named(environments, kind, "/")


def releases_of(environments: Iterable[str], kind: str) -> tuple[str, ...]:
    """Return the releases that names of environments have for a kind; empty for one that has no choice."""
    return _named(environments, kind, "@")


def _named(environments: Iterable[str], kind: str, mark: str) -> tuple[str, ...]:
    parts = (name.partition(mark) for name in environments)
    return tuple(rest for its_kind, found, rest in parts if its_kind == kind and found)


def release_name(thing: str, version: str) -> str:
    """Return the name of a release of a delegate or of a distribution."""
    return f"{thing}@{version}"


def environment_name(environments: Iterable[str], kind: str, options: Mapping[str, Any]) -> str:
    """Return the name among `Device.delegate_environments` of results of a delegate with these options."""
    release = options.get(RELEASE_OPTION)
    if release in releases_of(environments, kind):
        return release_name(kind, str(release))
    wanted = options.get(INTERFACE_OPTION)
    return f"{kind}/{wanted}" if wanted in interfaces_of(environments, kind) else kind


def expected_environment(
    device: dict[str, str], delegates: Mapping[str, dict[str, str]], kind: str, options: Mapping[str, Any]
) -> dict[str, str]:
    """Return the environment of a delegate's results, from that of a device and those of its delegates."""
    return device | delegates.get(environment_name(delegates, kind, options), {})


def environment_id(environment: dict[str, str]) -> str:
    """First 12 hex digits of the sha256 of canonical JSON (sorted keys, no blanks)."""
    text = json.dumps(environment, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


SANDBOX_FACT: Final = "sandbox"
"""Fact of a device, and so of its results: what keeps a runner away from everything but its attempt."""

SANDBOX_WITHOUT_FACT: Final = "sandbox_without"
"""Fact beside `SANDBOX_FACT`: what the sandbox lacks on this host, and why; absent where it lacks nothing."""

SANDBOX_SEES_PROCESSES: Final = "an own view of processes: it lists everybody's (only root may mount /proc)"
"""What the sandbox of an ordinary user's agent always lacks: a runner sees processes that it cannot touch."""

SANDBOX_OFF: Final = "off"
"""How the text of `SANDBOX_FACT` begins where the user switched the sandbox off."""


class MissingDelegate(Wire):
    """A delegate kind that this host cannot offer, and why (`gpu`: no OpenCL platform found ...)."""

    kind: Id
    reason: Text


class Arm(Wire):
    """Another attempt that is measured in blocks together with the job that names it: at a cell of the same
    model on the same host.

    `reported` False: no attempt, but a baseline that is measured again for the ratio alone, because its own
    cell has its result already; its ids are of this host only. `refines`: as in `JobSpec`.
    """

    attempt_id: Id
    attempt_no: Small
    cell_id: Id
    epoch: Small
    device_id: Id
    delegate: Id
    delegate_kind: Id
    # Of several types Pydantic takes the value's own: True stays a bool, and 1 an int.
    delegate_options: dict[Key, Text | Integer | float | bool] = Field(default={}, max_length=MAX_FACTS)
    reported: bool = True
    refines: Refinement | None = None


class JobSpec(Wire):
    """One attempt at one cell: everything the agent and its runner need.

    `arms`: what is measured in blocks together with it, under one lease. `baseline`: the attempt id, of the
    job or of an arm, over which the ratios of the others are taken; the order within each block is drawn by
    `seed`. `lead`: in the job of an arm, the attempt that carries it.
    `references`: what the farm knows of references for this model and these inputs, the newest first;
    `references_forgotten`: how often a user had those of this model forgotten, a part of their keys.
    `refines`: the result that its blocks are added to; None: it is measured from the first block on.
    """

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
    plan: MeasurePlan = Field(default_factory=MeasurePlan)
    inputs: dict[Key, InputSpec] = Field(default={}, max_length=MAX_INPUTS)
    soft_limit_s: float = 900.0
    hard_limit_s: float = 910.0
    arms: tuple[Arm, ...] = Field(default=(), max_length=MAX_ARMS)
    baseline: Id | None = None
    seed: Count = 0
    lead: Id | None = None
    references: tuple[ReferenceRecord, ...] = Field(default=(), max_length=MAX_KNOWN)
    references_forgotten: Count = 0
    refines: Refinement | None = None

    def of(self, arm: Arm) -> "JobSpec":
        """Return the job of an arm: this one's model, inputs and counts on the arm's delegate and device."""
        own = {name: getattr(arm, name) for name in Arm.model_fields if name != "reported"}
        return self.model_copy(update={**own, "arms": (), "lead": self.attempt_id})

    @property
    def carrier(self) -> str:
        """The attempt under whose lease it runs; empty where that is its own."""
        return self.lead or ""

    @property
    def attempts(self) -> "tuple[JobSpec, ...]":
        """The attempts that this job carries, its own first."""
        return (self, *(self.of(arm) for arm in self.arms if arm.reported))

    @property
    def files(self) -> dict[str, int]:
        """Files that the agent's store must have, with sizes in bytes, by sha256."""
        more = [self.plan.labelled, *(spec.data for spec in self.inputs.values())]
        named = {one.sha256: one.size_bytes for one in more if one is not None}
        return {self.model_sha256: self.model_bytes} | named

    @property
    def reference_files(self) -> dict[str, int]:
        """References that the agent's store should have: without them it makes its own."""
        return {known.sha256: known.size_bytes for known in self.references if known.sha256 is not None}


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
    """Heartbeat of an agent, whether it has jobs or not. `waiting`: results without a receipt.

    `clock_ns`: the wall clock of its host in nanoseconds since 1970; nothing is decided by it.
    """

    type: Literal["alive"] = "alive"
    waiting: Count = 0
    clock_ns: Count | None = None


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
    """The end of an attempt. Sent until a receipt comes back.

    `references`: those that it made itself, whose files the farm has by now.
    """

    type: Literal["result"] = "result"
    attempt_id: Id
    epoch: Small
    cell_id: Id
    device_id: Id
    status: Status
    reason: Reason | None = None
    measurement: Measurement | None = None
    environment: Facts = Field(default_factory=dict)
    facts: Facts = Field(default_factory=dict)
    log_tail: Text = ""
    duration_ns: Integer = 0
    references: tuple[ReferenceRecord, ...] = Field(default=(), max_length=MAX_MADE)


class Receipt(Wire):
    """The result is in the database: the agent may drop its copy."""

    type: Literal["receipt"] = "receipt"
    attempt_id: Id


class CancelJob(Wire):
    """Stop this attempt; its result has the blocks that it has finished, and without one is `cancelled`."""

    type: Literal["cancel"] = "cancel"
    attempt_id: Id


class Shutdown(Wire):
    """The agent is to end: stop what runs, report its finished blocks or that it was `interrupted`, exit."""

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
# A process reads one direction alone: the validators of the other one are never built.
_LATER: Final = ConfigDict(defer_build=True)
_TO_AGENT: TypeAdapter[Any] = TypeAdapter(ToAgent, config=_LATER)
_TO_ORCHESTRATOR: TypeAdapter[Any] = TypeAdapter(ToOrchestrator, config=_LATER)


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
    # A name that came in a message must not lead out of the store.
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise ValueError(f"not a sha256: {sha256!r}")
    return store / PurePosixPath("sha256", sha256[:2], sha256)
