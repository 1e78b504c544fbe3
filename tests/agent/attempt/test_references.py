"""The references that an agent keeps, and those by which its runners judge."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from agent.attempt import references as kept
from agent.attempt.files import AttemptFile
from agent.attempt.references import ReferenceFolder, made_path, write_made
from agent.runner.judge import references as runner
from agent.runner.judge.references import NotMade, References, find_references
from agent.wire.messages import Device, JobSpec, artifact_path
from agent.wire.plan import InputSpec
from agent.wire.reference import ReferenceRecord
from benchmarks.dynamic_range import dynamic_range
from runtime.judge.agreement import OutputFacts
from runtime.measure.reference import Reference, ReferenceKind, reference_key, save_reference
from runtime.model.graph import Model, Operator, Subgraph, Tensor
from runtime.model.schema import BuiltinOperator, TensorType
from runtime.model.writer import write_model
from tests.agent.embedded_agent import job

MODEL = ("5" * 64, 10)
DEVICE = Device(
    device_id="host-cpu", kind="cpu", api="host", name="A", delegates=(), exclusion_group="d", environment={}
)
EXACT, PEER = ReferenceKind.REFERENCE_KERNELS, ReferenceKind.XNNPACK


@dataclass
class Machine:
    """An agent's folders, and a reference process that writes an array of `value`."""

    folder: Path
    value: float = 1.0
    failure: NotMade | None = None
    asked: list[str] = field(default_factory=list)
    model_path: str = "m"

    @property
    def references(self) -> ReferenceFolder:
        return ReferenceFolder(self.folder / "references", self.folder / "store")

    def make(self, kind: ReferenceKind, target: Path, _limit_s: float) -> NotMade | None:
        self.asked.append(kind.value)
        if self.failure is None:
            outputs = ((np.full(3, self.value, np.float32),),)
            save_reference(target, Reference(kind, kind.value, (OutputFacts("y", 0.0, 0),), outputs))
        return self.failure

    def attempt(self, spec: JobSpec) -> tuple[References | str, tuple[ReferenceRecord, ...]]:
        """Return the references of an attempt, and the records that it hands to the farm. `asked` has what it
        made itself.
        """
        self.asked.clear()
        folder = self.folder / "work" / spec.attempt_id
        folder.mkdir(parents=True)
        own = str(self.references.prepare(spec))
        attempt = AttemptFile(job=spec, device=DEVICE, model_path=self.model_path, references=own)
        found = find_references(attempt, folder, self.make)
        return found, self.references.keep(spec, folder)

    def pass_time(self) -> None:
        """All files become a second older: clocks of file systems advance in steps of milliseconds."""
        for path in self.files():
            then_ns = path.stat().st_mtime_ns - 1_000_000_000
            os.utime(path, ns=(then_ns, then_ns))

    def files(self) -> list[Path]:
        return sorted(path for path in (self.folder / "references").rglob("*") if path.is_file())


NewMachine = Callable[..., Machine]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NewMachine:
    """Machines with LiteRT 1 that share a store, as agents share the farm's."""
    monkeypatch.setattr(runner, "reference_kinds", lambda: (EXACT, PEER))
    monkeypatch.setattr(runner, "litert_maker", lambda: "1/x86_64")
    (tmp_path / "store").mkdir()

    def new(name: str = "one", **options: object) -> Machine:
        (tmp_path / name).mkdir()
        (tmp_path / name / "store").symlink_to(tmp_path / "store")
        return Machine(tmp_path / name, **options)  # type: ignore[arg-type]

    return new


def value(found: References | str) -> float:
    assert isinstance(found, References), found
    return float(found.reference.outputs[0][0][0])


def test_what_was_made_is_found_by_later_attempts_and_handed_to_the_farm_once(machine: NewMachine) -> None:
    one = machine()
    found, records = one.attempt(job(MODEL))
    assert (value(found), one.asked, [r.kind for r in records]) == (1.0, ["reference", "xnnpack"], one.asked)
    again, none = one.attempt(job(MODEL))
    assert (value(again), one.asked, none) == (1.0, [], ())
    _, of_other_inputs = one.attempt(job(MODEL, inputs={"x": InputSpec(seed=1)}))
    assert {r.key for r in of_other_inputs}.isdisjoint(r.key for r in records)


def test_the_farms_reference_is_used_before_one_is_made_and_before_the_own_one(machine: NewMachine) -> None:
    one, two, false = machine("one"), machine("two", value=2.0), machine("three", value=3.0)
    _, records = one.attempt(job(MODEL))
    found, none = two.attempt(job(MODEL, references=records))
    assert (value(found), two.asked, none) == (1.0, [], ())
    false.attempt(job(MODEL))
    found, _ = false.attempt(job(MODEL, references=records))
    assert (value(found), false.asked) == (1.0, [])


@pytest.mark.parametrize(
    ("hybrid", "options", "draws"),
    [
        (False, {}, ["moved"]),
        (False, {"precision": "fp16"}, ["moved", "fp16", "fp16_scaled"]),
        (False, {"precision": "bf16"}, ["moved", "bf16", "bf16_scaled"]),
        (False, {"precision_loss_allowed": True}, ["moved", "fp16", "fp16_scaled"]),
        (True, {"precision": "int8"}, ["builtin", "threads", "moved"]),
    ],
)
def test_honest_runs_are_made_once_by_what_the_model_and_the_delegate_compute_in(
    machine: NewMachine, tmp_path: Path, hybrid: bool, options: dict[str, object], draws: list[str]
) -> None:
    one, model = machine(), tmp_path / "model.tflite"
    model.write_bytes(dynamic_range(layers()) if hybrid else layers())
    one.model_path = str(model)
    found, records = one.attempt(job(MODEL, delegate_kind="gpu", delegate_options=options))
    assert isinstance(found, References)
    assert [kind.value for kind in found.draws] == ["xnnpack", *draws]
    assert [record.kind for record in records] == ["reference", "xnnpack", *draws]
    one.attempt(job(MODEL, delegate_kind="gpu", delegate_options=options))
    assert one.asked == []


def layers() -> bytes:
    """Build a float model of one layer that is large enough to be quantised."""
    weights = memoryview(np.ones((32, 64), np.float32).tobytes())
    tensors = (
        Tensor(0, "x", TensorType.FLOAT32, (1, 64)),
        Tensor(1, "w", TensorType.FLOAT32, (32, 64), buffer=1, data=weights),
        Tensor(2, "y", TensorType.FLOAT32, (1, 32)),
    )
    operator = Operator(0, BuiltinOperator.FULLY_CONNECTED, 1, (0, 1, -1), (2,))
    return write_model(Model(3, "", (Subgraph(0, "main", tensors, (0,), (2,), (operator,)),)))


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "another"])
def test_a_damaged_artifact_is_not_used_and_made_anew(machine: NewMachine, damage: str) -> None:
    one, two, three = machine("one"), machine("two", value=2.0), machine("three", value=3.0)
    _, records = one.attempt(job(MODEL))
    _, others = three.attempt(job(MODEL))
    for record, other in zip(records, others, strict=True):
        path = artifact_path(one.folder / "store", str(record.sha256))
        data = bytearray(path.read_bytes())
        if damage == "another":
            data[:] = artifact_path(one.folder / "store", str(other.sha256)).read_bytes()
        else:
            data[-200] ^= 1
        path.unlink()
        if damage != "gone":
            path.write_bytes(data[:-1] if damage == "short" else data)
    found, made = two.attempt(job(MODEL, references=records))
    assert (value(found), two.asked, len(made)) == (2.0, ["reference", "xnnpack"], 2)


def test_a_damaged_file_of_the_own_folder_is_made_anew(machine: NewMachine) -> None:
    one = machine()
    one.attempt(job(MODEL))
    for path in one.files():
        path.write_bytes(path.read_bytes()[:-100])
    found, _ = one.attempt(job(MODEL))
    assert (value(found), one.asked) == (1.0, ["reference", "xnnpack"])


def test_a_failure_is_remembered_here_and_elsewhere_until_it_is_forgotten(machine: NewMachine) -> None:
    why = NotMade("it aborts", lasting=True)
    one, two = machine("one", failure=why), machine("two", failure=why)
    found, records = one.attempt(job(MODEL))
    assert found == "no reference: it aborts"
    assert [(r.failure, r.limit_s, r.sha256) for r in records] == [("it aborts", 270.0, None)] * 2
    assert two.attempt(job(MODEL, references=records)) == (found, ())
    assert two.asked == []
    two.attempt(job(MODEL, references=records, soft_limit_s=1000.0, hard_limit_s=1010.0))
    assert two.asked == ["reference", "xnnpack"], "an attempt that gives more time tries again"
    one.attempt(job(MODEL, references_forgotten=1))
    assert one.asked == ["reference", "xnnpack"]


def test_a_failure_that_does_not_last_is_told_to_nobody(machine: NewMachine) -> None:
    one = machine(failure=NotMade("it was killed", lasting=False))
    _, records = one.attempt(job(MODEL))
    assert (records, one.files()) == ((), [])


@pytest.mark.parametrize("maker", ["1/x86_64", "2/aarch64"])
def test_without_litert_a_reference_of_the_farm_is_used_and_else_an_own_one(
    machine: NewMachine, monkeypatch: pytest.MonkeyPatch, maker: str
) -> None:
    monkeypatch.setattr(runner, "litert_maker", lambda: maker)
    one, two = machine("one"), machine("two", value=2.0)
    _, records = one.attempt(job(MODEL))
    monkeypatch.setattr(runner, "reference_kinds", lambda: (ReferenceKind.CPU,))
    monkeypatch.setattr(runner, "runtime_identity", lambda _executes: "0+abc")
    found, _ = two.attempt(job(MODEL, references=records[::-1]))
    assert (value(found), two.asked) == (1.0, [])
    assert isinstance(found, References)
    assert (found.reference.kind, list(found.draws)) == (EXACT, [PEER])
    own, none = two.attempt(job(("6" * 64, 10)))
    assert (value(own), two.asked, none) == (2.0, ["cpu"], ()), "it stays here"


def test_what_a_runner_made_does_not_replace_what_the_farm_gave(machine: NewMachine) -> None:
    one, two = machine("one"), machine("two", value=2.0)
    _, records = one.attempt(job(MODEL))
    given = next(record for record in records if record.kind == "reference")
    spec, folder = job(MODEL, references=[given]), two.folder / "work" / "evil"
    folder.mkdir(parents=True)
    two.references.prepare(spec)
    two.make(EXACT, made_path(folder, "reference"), 1.0)
    data = made_path(folder, "reference").read_bytes()
    own = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_made(folder, [given.model_copy(update=own)])
    two.references.keep(spec, folder)
    found, _ = two.attempt(job(MODEL))
    assert value(found) == 1.0


def test_a_record_for_another_model_is_not_judged_by(machine: NewMachine) -> None:
    one, two = machine("one"), machine("two", value=2.0)
    _, records = one.attempt(job(("6" * 64, 10)))
    found, _ = two.attempt(job(MODEL, references=records))
    assert (value(found), two.asked) == (2.0, ["reference", "xnnpack"])


def test_a_runner_that_lies_about_what_it_made_decides_over_its_own_model_alone(machine: NewMachine) -> None:
    one = machine()
    other = ("6" * 64, 10)
    key = reference_key(other[0], {}, EXACT, "1/x86_64")
    spec, folder = job(MODEL), one.folder / "work" / "evil"
    folder.mkdir(parents=True)
    one.value = 9.0
    one.make(EXACT, made_path(folder, "reference"), 1.0)
    data = made_path(folder, "reference").read_bytes()
    record = ReferenceRecord(
        key=key, kind="reference", maker="1/x86_64", size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )  # fmt: skip
    write_made(folder, [record, record.model_copy(update={"key": "7" * 64, "sha256": "8" * 64})])
    assert one.references.keep(spec, folder) == (record,), "bytes that are not those of the hash stay out"
    one.value = 1.0
    found, _ = one.attempt(job(other))
    assert value(found) == 1.0


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", json.dumps([{"key": "../x"}]).encode()])
def test_records_that_cannot_be_read_are_left_out(machine: NewMachine, content: bytes) -> None:
    one, folder = machine(), machine("two").folder
    (folder / "references.json").write_bytes(content)
    assert one.references.keep(job(MODEL), folder) == ()


def test_the_folder_is_bounded_and_what_was_used_last_stays(
    machine: NewMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = machine()
    one.attempt(job(MODEL))
    size = sum(path.stat().st_size for path in one.files())
    monkeypatch.setattr(kept, "LARGEST_FOLDER_BYTES", 2 * size)
    for spec in (job(("6" * 64, 10)), job(MODEL), job(("7" * 64, 10))):
        one.pass_time()
        one.attempt(spec)
    assert len(one.files()) == 4
    one.attempt(job(MODEL))
    assert one.asked == [], "the one that was used in between stayed"
