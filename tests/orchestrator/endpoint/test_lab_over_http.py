"""A lab whose agent shares nothing with the farm but Redis and the endpoint: campaigns of real models."""

from __future__ import annotations

import hashlib
import json
import shutil
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from agent.wire.messages import artifact_path
from tests import needs
from tests.models.collection import real_model
from tests.models.pictures import labelled, picture
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.endpoint.http_lab import READ_TOKEN, SUBMIT_TOKEN, HttpLab, http_lab
from tests.services.postgres import PostgresCluster

CAMPAIGN = """\
version: 1
campaign: NAME
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0}}
models:
  - {id: small, source: small.tflite}
  - {id: large, source: large.tflite}
delegates:
  cpu: {kind: cpu, threads: 1}
devices:
  - {name: "*cpu*"}
"""
LONG_CAMPAIGN = """\
version: 1
campaign: talkative
defaults:
  measure:
    warmup: {runs: 1, min_seconds: 0}
    blocks: 1
    rounds: 3
    slice: {seconds: 5}
models:
  - {id: small, source: small.tflite}
delegates:
  litert: {kind: litert, threads: 1}
devices:
  - {name: "*cpu*"}
"""


ACCURACY_CAMPAIGN = """\
version: 1
campaign: accuracy
defaults:
  measure: {warmup: {runs: 1, min_seconds: 0}, blocks: 1, rounds: 3, slice: {seconds: 0}}
models:
  - id: good
    source: resnet8.tflite
    accuracy: {dataset: cifar10.npz, metric: top1, at_least: 0.7}
  - id: doubtful
    source: resnet8.tflite
    accuracy: {dataset: cifar10.npz, at_least: 1}
delegates:
  cpu: {kind: cpu}
devices:
  - {name: "*host-cpu"}
"""


@pytest.fixture(scope="module")
def lab(
    tmp_path_factory: pytest.TempPathFactory, short_folder: Path, postgres: PostgresCluster
) -> Iterator[HttpLab]:
    """One lab for the campaigns of all tests: their names and their models are different ones."""
    needs.redis_server()
    with http_lab(tmp_path_factory.mktemp("lab"), short_folder, postgres) as made:
        yield made


def write_campaign(lab: HttpLab, name: str, small: int, large: int) -> dict[str, bytes]:
    """Write a campaign and its two models of so many elements; return the models by file name."""
    models = {"small.tflite": unary_model(size=small), "large.tflite": unary_model(size=large)}
    for file, content in models.items():
        (lab.folder / file).write_bytes(content)
    (lab.folder / "models.yaml").write_text(CAMPAIGN.replace("NAME", name))
    return models


def kept_by_the_agent(lab: HttpLab) -> set[bytes]:
    return {path.read_bytes() for path in (lab.state / "store" / "sha256").glob("*/*")}


def campaigns(lab: HttpLab) -> list[str]:
    found = json.loads(lab.run("farm", "status", "--json").stdout)["campaigns"]
    return [campaign["name"] for campaign in found]


@pytest.mark.parametrize("service", ["serve", "agent"])
def test_a_service_tells_systemd_that_it_is_ready_and_alive(lab: HttpLab, service: str) -> None:
    said = lab.notified[service].said()
    assert said[0] == "READY=1"
    deadline = time.monotonic() + 60
    while lab.notified[service].said().count("WATCHDOG=1") < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    said = lab.notified[service].said()
    assert said.count("WATCHDOG=1") >= 2
    assert any(line.startswith("STATUS=") for line in said)


def test_models_travel_there_and_samples_back_by_the_endpoint_alone(lab: HttpLab) -> None:
    before = kept_by_the_agent(lab)
    models = write_campaign(lab, "over-http", 32, 1 << 16)
    ran = lab.run("farm", "submit", "models.yaml")
    assert ran.returncode == 0, ran.stderr + lab.serve.tail() + lab.agent.tail()

    new = kept_by_the_agent(lab) - before
    assert new == set(models.values()), "the agent keeps the models and none of the samples"
    assert not (lab.state / "store").is_symlink()
    assert lab.run("farm", "db", "check", "--deep").returncode == 0

    headers = {"authorization": f"Bearer {READ_TOKEN}"}
    trusting = ssl.create_default_context(cafile=lab.authority.path)
    with httpx.Client(base_url=lab.url, headers=headers, verify=trusting, trust_env=False) as reader:
        cells = reader.get("/campaigns/over-http/results").json()
    assert [(cell["model"], cell["status"]) for cell in cells] == [("small", "done"), ("large", "done")]
    assert json.loads(lab.run("farm", "results", "--format", "json").stdout) == cells

    logs = (
        lab.serve.tail()
        + lab.agent.tail()
        + "".join(path.read_text(errors="replace") for path in lab.state.rglob("*.log"))
    )
    assert [secret for secret in [*lab.secrets, READ_TOKEN] if secret in logs] == []


def references_made(lab: HttpLab) -> int:
    lines = map(json.loads, (lab.state / "runs.log").read_text().splitlines())
    return sum((line["event"], line["what"]) == ("start", "reference") for line in lines)


def kept_references(lab: HttpLab) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (lab.state / "references").rglob("*.npz")}


@pytest.mark.conformance
def test_a_damaged_model_in_an_agents_cache_is_fetched_again_and_lost_references_come_from_the_farm(
    lab: HttpLab,
) -> None:
    shutil.rmtree(lab.state / "references", ignore_errors=True)
    models = write_campaign(lab, "damaged", 64, 128)
    assert lab.run("farm", "submit", "models.yaml").returncode == 0
    hashes = {hashlib.sha256(content).hexdigest(): content for content in models.values()}
    for sha256 in hashes:
        path = artifact_path(lab.state / "store", sha256)
        damaged = bytearray(path.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(damaged)
    references, made = kept_references(lab), references_made(lab)
    assert len(references) == 6, "of two models: the reference kernels', XNNPACK's, and with inputs moved"
    shutil.rmtree(lab.state / "references")
    again = lab.run("farm", "submit", "models.yaml", "--force")
    assert again.returncode == 0, again.stderr
    assert (kept_references(lab), references_made(lab)) == (references, made)
    assert lab.run("farm", "db", "check", "--deep").returncode == 0
    for sha256, content in hashes.items():
        assert artifact_path(lab.state / "store", sha256).read_bytes() == content


@pytest.mark.slow
def test_a_user_elsewhere_brings_the_models_or_is_told_how(lab: HttpLab) -> None:
    write_campaign(lab, "elsewhere", 96, 1 << 12)
    before = campaigns(lab)
    told = lab.run("farm", "submit", "models.yaml", environment=lab.elsewhere())
    assert told.returncode == 2
    assert "set FARM_ENDPOINT and FARM_SUBMIT_TOKEN" in told.stderr
    looked = lab.run("farm", "doctor", "--json", environment=lab.elsewhere())
    faults = [check["name"] for check in json.loads(looked.stdout)["checks"] if not check["ok"]]
    assert "upload" in faults
    assert looked.returncode == 1
    assert campaigns(lab) == before

    user = lab.elsewhere(
        FARM_ENDPOINT=lab.url, FARM_SUBMIT_TOKEN=SUBMIT_TOKEN, FARM_TLS_CA=str(lab.authority.path)
    )
    looked = json.loads(lab.run("farm", "doctor", "--json", environment=user).stdout)
    assert [check["ok"] for check in looked["checks"] if check["name"] == "upload"] == [True]
    ran = lab.run("farm", "submit", "models.yaml", environment=user)
    assert ran.returncode == 0, ran.stderr + lab.serve.tail()
    assert ran.stderr.count("sending model ") == 2
    again = lab.run("farm", "submit", "models.yaml", "--force", environment=user)
    assert again.returncode == 0
    assert "sending model" not in again.stderr
    assert lab.run("farm", "db", "check", "--deep").returncode == 0
    (done, *_) = json.loads(lab.run("farm", "status", "elsewhere", "--json").stdout)["cells"]
    blind = lab.run("farm", "show", done["cell"], "--json", environment=user)
    assert blind.returncode == 1
    assert "set FARM_ENDPOINT and FARM_READ_TOKEN" in blind.stderr
    reader = user | {"FARM_READ_TOKEN": READ_TOKEN}
    there = json.loads(lab.run("farm", "show", done["cell"], "--json", environment=reader).stdout)
    assert there == json.loads(lab.run("farm", "show", done["cell"], "--json").stdout)
    assert len(there["processes"][1]["invoke_ns"]) >= 5

    for words in (("db", "check"), ("db", "prune", "--keep", "90d")):
        there = lab.run("farm", *words, environment=user)
        assert there.returncode != 0
        assert "run this there" in there.stderr
    assert SUBMIT_TOKEN not in ran.stdout + ran.stderr + lab.serve.tail()


@pytest.mark.conformance
def test_what_a_runner_elsewhere_writes_is_shown_while_it_runs(lab: HttpLab) -> None:
    device = "rack-1.host-cpu"
    lab.run("farm", "devices", "quarantine", device)
    (lab.folder / "small.tflite").write_bytes(unary_model(size=1 << 20))
    (lab.folder / "models.yaml").write_text(LONG_CAMPAIGN)
    lab.service("submit", lab.environment, "farm", "submit", str(lab.folder / "models.yaml"))
    lab.serve.until(lambda: "talkative" in campaigns(lab), "the submission")
    (cell,) = json.loads(lab.run("farm", "status", "talkative", "--json").stdout)["cells"]
    watching = lab.service("logs", lab.environment, "farm", "show", "--logs", cell["cell"], "-f", "--json")
    lab.run("farm", "devices", "release", device)
    assert watching.end() == 0
    said = [json.loads(line) for line in watching.log.read_text().splitlines()]
    kinds = [entry.get("kind", "log") for entry in said]
    assert kinds.index("started") < kinds.index("log") < kinds.index("finished")
    text = "".join(entry["log"] for entry in said if "log" in entry)
    assert "XNNPACK" in text
    ended = lab.run("farm", "show", "--logs", cell["cell"], "--json").stdout.splitlines()
    assert "".join(json.loads(line).get("log", "") for line in ended) == text


@pytest.mark.conformance
def test_an_accuracy_cell_gets_its_labelled_data_by_the_endpoint(lab: HttpLab) -> None:
    """A real model on real pictures, from a machine with an address and a token alone: most of CIFAR-10's are
    right, and a bound that is too high fails.
    """
    name = "mlc_resnet8_i8"
    (lab.folder / "resnet8.tflite").write_bytes(real_model(name))
    files = list(labelled("foolbox", "cifar10_*.png"))
    pictures = np.stack([picture(path, (32, 32)) for path, _ in files])
    levels = (pictures.astype(np.int16) - 128).astype(np.int8)
    np.savez(lab.folder / "cifar10.npz", labels=np.array([label for _, label in files]), inputs=levels)
    (lab.folder / "models.yaml").write_text(ACCURACY_CAMPAIGN)
    user = lab.user("ana")
    ran = lab.run("farm", "submit", "models.yaml", environment=user)
    assert ran.returncode == 1, ran.stderr + lab.serve.tail()
    good, doubtful = json.loads(lab.run("farm", "results", "--format", "json").stdout)
    shown = lab.run("farm", "show", good["cell_id"], "--json", environment=user)
    assert len(json.loads(shown.stdout)["processes"][1]["invoke_ns"]) >= 11, shown.stderr
    assert user["FARM_TOKEN"] not in ran.stderr + shown.stderr + lab.serve.tail()
    assert good["status"] == "done", good["reason"]
    assert good["labelled"]["verdict"] == "pass"
    assert good["labelled"]["samples"] == len(files)
    assert good["labelled"]["ci95"][0] >= 0.7
    assert good["latency_ms"]["p50"] is not None
    assert doubtful["labelled"]["right"] == good["labelled"]["right"]
    assert (doubtful["status"], doubtful["reason"]["code"]) == ("failed", "wrong_output")
    assert "at least 1 was asked for" in doubtful["reason"]["text"]
    assert doubtful["latency_ms"]["p50"] is None

    data = hashlib.sha256((lab.folder / "cifar10.npz").read_bytes()).hexdigest()
    assert artifact_path(lab.state / "store", data).is_file(), "the agent keeps it for the next cell"
    checked = lab.run("farm", "db", "check", "--deep")
    assert checked.returncode == 0
    there = artifact_path(lab.home / "store", data)
    away = there.rename(lab.folder / "away")
    assert "labelled data" in lab.run("farm", "db", "check").stdout, "the database knows that it needs it"
    away.rename(there)
