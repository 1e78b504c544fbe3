"""An agent checks a job before it accepts it."""

from __future__ import annotations

import hashlib

import pytest

from agent.attempt.admission import RefusedError, admit
from agent.attempt.journal import Journal
from agent.config import AgentConfig
from agent.wire.messages import Arm, Device, ReasonCode, artifact_path
from agent.wire.plan import InputData, InputSpec, LabelledData
from tests.agent.embedded_agent import BRIEF, job

MODEL = b"model" * 100
DATA = b"labelled" * 100
DEVICE = Device(
    device_id="host-cpu", kind="cpu", api="host", name="cpu", delegates=("cpu",), exclusion_group="host-cpu",
    environment={},
)  # fmt: skip


@pytest.fixture
def config(tmp_path):
    found = AgentConfig("test", tmp_path / "state", tmp_path / "store", tmp_path / "leases")
    for content in (MODEL, DATA):
        path = artifact_path(found.store, sha256(content))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return found


@pytest.fixture
def journal(tmp_path):
    opened = Journal(tmp_path / "journal.db")
    yield opened
    opened.close()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def a_job(**fields):
    return job((sha256(MODEL), len(MODEL)), **fields)


def refused(config, journal, **fields) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        admit(a_job(**fields), config, {"host-cpu": DEVICE}, journal)
    return caught.value


def test_a_job_of_a_newer_epoch_is_accepted_with_its_files(config, journal):
    journal.accept(a_job(epoch=7))
    journal.accept(a_job(epoch=90, device="other"))
    attempt = admit(a_job(epoch=8), config, {"host-cpu": DEVICE}, journal)
    assert (attempt.device, attempt.model) == (DEVICE, artifact_path(config.store, sha256(MODEL)))
    assert attempt.data is None


def test_the_first_epoch_of_a_device_is_accepted(config, journal):
    assert admit(a_job(epoch=1), config, {"host-cpu": DEVICE}, journal).job.epoch == 1


@pytest.mark.parametrize("epoch", [6, 7])
def test_a_job_of_an_epoch_that_its_device_has_seen_is_refused(config, journal, epoch):
    journal.accept(a_job(epoch=7))
    refusal = refused(config, journal, epoch=epoch)
    assert refusal.code is ReasonCode.INTERRUPTED
    assert "obsolete" in str(refusal)


@pytest.mark.parametrize("name", ["../evil", "a/b", "..", ".hidden", "a:b", "a" * 101])
def test_an_attempt_whose_id_could_name_a_path_is_refused(config, journal, name):
    assert refused(config, journal, attempt_id=name).code is ReasonCode.RUNNER_ERROR


def test_a_device_that_is_not_here_is_refused_with_those_that_are(config, journal):
    refusal = refused(config, journal, device="gpu-7")
    assert refusal.code is ReasonCode.NO_DEVICE
    assert "host-cpu" in str(refusal)


def test_labelled_data_is_verified_like_the_model(config, journal):
    def plan(sha256: str):
        return BRIEF.model_copy(update={"labelled": LabelledData(sha256=sha256, size_bytes=len(DATA))})

    attempt = admit(a_job(plan=plan(sha256(DATA))), config, {"host-cpu": DEVICE}, journal)
    assert attempt.data == artifact_path(config.store, sha256(DATA))
    refusal = refused(config, journal, plan=plan("0" * 64))
    assert refusal.code is ReasonCode.ARTIFACT
    assert "labelled data" in str(refusal)


def test_data_of_inputs_are_verified_like_the_model(config, journal):
    def inputs(sha256: str):
        return {"x": InputSpec(data=InputData(sha256=sha256, size_bytes=len(DATA))), "y": InputSpec()}

    attempt = admit(a_job(inputs=inputs(sha256(DATA))), config, {"host-cpu": DEVICE}, journal)
    assert attempt.inputs == {"x": artifact_path(config.store, sha256(DATA))}
    refusal = refused(config, journal, inputs=inputs("0" * 64))
    assert refusal.code is ReasonCode.ARTIFACT
    assert "data of input 'x'" in str(refusal)


def test_every_arm_is_admitted_with_its_own_job(config, journal):
    first = a_job(epoch=8)
    arm = Arm(
        attempt_id=f"{first.attempt_id}-1", attempt_no=1, cell_id="cell-1", epoch=8, device_id="host-cpu",
        delegate="other", delegate_kind="cpu", delegate_options={},
    )  # fmt: skip
    both = first.model_copy(update={"arms": (arm,), "baseline": first.attempt_id, "seed": 1})
    attempt = admit(both, config, {"host-cpu": DEVICE}, journal)
    assert [(one.job.attempt_id, one.device, one.reported) for one in attempt.arms] == [
        (arm.attempt_id, DEVICE, arm.reported)
    ]
