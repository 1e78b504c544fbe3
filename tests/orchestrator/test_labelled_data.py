"""Labelled data from the campaign file to the plan of its cells, and how long the store keeps it."""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.wire.messages import JobSpec
from agent.wire.plan import LabelledData, MeasurePlan
from orchestrator.db.campaigns import retention
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Campaign
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import ManifestError
from orchestrator.sources import content
from orchestrator.sources.datasets import with_data
from orchestrator.sources.resolve import StoredModel, check_all, resolve_all
from orchestrator.sources.store import Store
from orchestrator.sources.web import Web
from tests.orchestrator.asked import asked
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.stocked import cells, stock

MODEL = b"\x1c\x00\x00\x00TFL3"
ACCURACY = "accuracy: {dataset: digits.npz, metric: top5, at_least: 0.85}"


def write(folder: Path, accuracy: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(
        "version: 1\ncampaign: c\ndelegates: {cpu: {kind: cpu}}\n"
        f"models:\n  - id: m\n    source: m.tflite\n    {accuracy}\n"
    )
    return path


def save(folder: Path, **arrays: np.ndarray) -> None:
    np.savez(folder / "digits.npz", **arrays)


def planned(folder: Path, accuracy: str = ACCURACY) -> MeasurePlan:
    (folder / "m.tflite").write_bytes(MODEL)
    campaign = load_manifest(write(folder, accuracy))
    found, _ = _with_data(campaign, folder)
    return found.models[0].plan


def _with_data(campaign: Campaign, folder: Path) -> tuple[Campaign, tuple[StoredModel, ...]]:
    store, checked = Store(folder / "store"), check_all(campaign.models, folder)
    models = resolve_all(checked, store)
    return with_data(campaign, models, checked, store, lambda _: None, Web())


def test_the_plan_names_the_data_in_the_store(tmp_path: Path) -> None:
    save(tmp_path, labels=np.arange(3), inputs=np.zeros((3, 4), np.float32))
    found = planned(tmp_path).labelled
    assert found is not None
    assert (found.metric, found.at_least) == ("top5", 0.85)
    stored = Store(tmp_path / "store").path(found.sha256)
    assert stored.read_bytes() == (tmp_path / "digits.npz").read_bytes()
    assert found.size_bytes == stored.stat().st_size


def test_a_model_whose_data_cannot_be_reached_is_not_measured_without_it(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(MODEL)
    there = "accuracy: {dataset: 'https://nowhere.invalid/d.npz'}\n  - {id: n, source: m.tflite}"
    (_, (lacking, complete)) = _with_data(load_manifest(write(tmp_path, there)), tmp_path)
    assert (lacking.sha256, complete.unreachable) == ("", None)
    assert lacking.unreachable is not None
    assert lacking.unreachable.startswith("labelled data: https://nowhere.invalid/d.npz")


@pytest.mark.parametrize(
    ("accuracy", "said"),
    [
        ("accuracy: {metric: top1}", "dataset"),
        ("accuracy: {dataset: d.npz, metric: top20}", "unknown metric 'top20'"),
        ("accuracy: {dataset: d.npz, at_least: 85}", "at most 1"),
        ("accuracy: {dataset: d.npz, max_drop: 0.01}", "max_drop needs a baseline to drop from"),
        (
            "accuracy: {dataset: d.npz, metric: mae, at_least: 0.5}",
            "no limit of mae, of which less is better",
        ),
        ("accuracy: {dataset: d.npz, mean: [1, 2, 3, 4]}", "expected 1 to 3 items, found 4"),
        ("accuracy: {data: d.npz}", "did you mean 'dataset'"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_place(tmp_path: Path, accuracy: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        load_manifest(write(tmp_path, accuracy))


def test_data_that_is_not_there_is_missed_before_anything_is_stored(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(MODEL)
    campaign = load_manifest(write(tmp_path, ACCURACY))
    with pytest.raises(ManifestError, match=r"models.yaml:6:13: .*digits.npz: no such file"):
        check_all(campaign.models, tmp_path, str(tmp_path / "models.yaml"))


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    (tmp_path / "digits.npz").write_text("no archive")
    with pytest.raises(UsageError, match=r"or a \.zip or \.tar of pictures, and this file is neither"):
        planned(tmp_path)
    save(tmp_path, inputs=np.zeros(3))
    with pytest.raises(UsageError, match=r"an array 'labels'.*this has inputs\.npy"):
        planned(tmp_path)


@pytest.mark.parametrize("truth", ["ground_truth.txt", "./instances.json"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_an_archive_of_pictures_is_data_if_it_has_their_truth(tmp_path: Path, kind: str, truth: str) -> None:
    def archive(*names: str) -> None:
        content = b"cat"
        with (tmp_path / "digits.npz").open("wb") as file:
            if kind == "zip":
                with zipfile.ZipFile(file, "w") as made:
                    for name in names:
                        made.writestr(name.removeprefix("./"), content)
                return
            with tarfile.open(fileobj=file, mode="w") as tar:
                for name in names:
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))

    archive("a.png", truth)
    assert planned(tmp_path).labelled is not None
    archive("a.png", "secrets.txt")
    with pytest.raises(UsageError, match=r"ground_truth.txt or instances.json; this has neither"):
        planned(tmp_path)


def test_an_archive_takes_no_more_memory_than_one_of_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    large = 17 << 20
    directory = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, large, 4, 0)
    with pytest.raises(UsageError, match="more than 16 MiB"):
        content.require_labelled_data(io.BytesIO(b"PK\3\4" + bytes(large) + directory), "x")
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, large
    with pytest.raises(UsageError, match="more than 16 MiB"):
        content.require_labelled_data(io.BytesIO(header.tobuf() + bytes(large + 1024)), "x")
    monkeypatch.setattr(content, "_MOST_MEMBERS", 3)
    for names, refused in (("abc", "has neither"), ("abcd", "more than 3 members")):
        members = b"".join(tarfile.TarInfo(name).tobuf() for name in names)
        with pytest.raises(UsageError, match=refused):
            content.require_labelled_data(io.BytesIO(members + bytes(1024)), "x")


def test_a_folder_of_pictures_is_stored_as_a_tar_of_them_alone(tmp_path: Path) -> None:
    folder = tmp_path / "digits.npz"  # a name says nothing
    (folder / "inner").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"a folder of pictures has ground_truth.txt or instances.json"):
        planned(tmp_path)
    for name in ("ground_truth.txt", "b.png", "inner/a.JPG", "inner/labels.txt", "passwords", "b.png.txt"):
        (folder / name).write_bytes(name.encode() * 100)
    data = planned(tmp_path).labelled
    assert data is not None
    with tarfile.open(Store(tmp_path / "store").path(data.sha256)) as tar:
        assert tar.getnames() == ["b.png", "ground_truth.txt", "inner/a.JPG"]
        member = tar.extractfile("inner/a.JPG")
        assert member is not None
        assert member.read() == b"inner/a.JPG" * 100
    (folder / "b.png").touch()
    again = planned(tmp_path).labelled
    assert again is not None
    assert again.sha256 == data.sha256
    (folder / "c.png").symlink_to("passwords")
    with pytest.raises(UsageError, match=r"c.png: no regular file"):
        planned(tmp_path)


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"labels": np.arange(3), "inputs": np.zeros((3, 8))}, None),
        ({"labels": np.arange(3), "input": np.zeros((3, 2, 4))}, None),
        ({"labels": np.arange(3), "inputs": np.zeros((3, 9))}, r"samples of \[9\].*'input' takes \[1, 8\]"),
        (
            {"labels": np.arange(3), "inputs": np.zeros((2, 8))},
            r"shape \[2, 8\]; there are 3 samples of",
        ),
        ({"labels": np.arange(3), "x": np.zeros((3, 8)), "y": np.zeros(3)}, "input 'input'; there are: x, y"),
        (
            {"labels": np.zeros(3), "inputs": np.zeros((3, 8))},
            r"must be integers.*real numbers of shape \[3\]",
        ),
        ({"labels": np.arange(3), "inputs": np.zeros((3, 8)), "metric": "top8"}, "top8 .* with 8 classes"),
        ({"outputs": np.zeros((3, 8)), "inputs": np.zeros((3, 8)), "metric": "cosine"}, None),
        ({"labels": np.arange(3), "inputs": np.zeros((3, 8)), "metric": "mae"}, "for the model's output"),
        ({"outputs": np.zeros((3, 8)), "inputs": np.zeros((3, 8))}, "no array 'labels', which top5 needs"),
        ({"labels": np.array([None]), "inputs": np.zeros((1, 8))}, r"of another type of shape \[1\]"),
    ],
)
def test_data_that_does_not_fit_its_model_is_refused_before_anything_is_measured(
    tmp_path: Path, arrays: dict[str, Any], said: str | None
) -> None:
    (tmp_path / "m.tflite").write_bytes(unary_model(size=8))
    metric = arrays.pop("metric", "top5")
    save(tmp_path, **arrays)
    campaign = load_manifest(write(tmp_path, f"accuracy: {{dataset: digits.npz, metric: {metric}}}"))
    if said is None:
        assert _with_data(campaign, tmp_path)[0].models[0].plan.labelled is not None
        return
    with pytest.raises(UsageError, match=rf"m: labelled data digits.npz: .*{said}"):
        _with_data(campaign, tmp_path)


@pytest.mark.parametrize("fault", ["encrypted", "damaged", "method", "shape"])
def test_arrays_that_cannot_be_unpacked_are_refused_and_no_fault_of_the_farm(
    tmp_path: Path, fault: str
) -> None:
    (tmp_path / "m.tflite").write_bytes(unary_model())
    path = tmp_path / "digits.npz"
    np.savez_compressed(path, labels=np.arange(1000), inputs=np.arange(1000.0))
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    if fault == "encrypted":
        content[6] |= 1
        content[entry + 8] |= 1
    elif fault == "damaged":
        content[60:90] = b"\xff" * 30
    elif fault == "method":
        content[8] = content[entry + 10] = 99
    path.write_bytes(content)
    if fault == "shape":
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1e999,)}"
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("labels.npy", "inputs.npy"):
                archive.writestr(name, b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    campaign = load_manifest(write(tmp_path, ACCURACY))
    with pytest.raises(UsageError, match=r"m: labelled data digits\.npz: "):
        _with_data(campaign, tmp_path)


def test_a_plan_without_data_reads_as_before_there_was_any() -> None:
    """Else every series would begin anew."""
    assert "labelled" not in MeasurePlan().model_dump(mode="json")
    assert "labelled" not in MeasurePlan().model_dump_json()
    data = LabelledData(sha256="5" * 64, size_bytes=7)
    plan = MeasurePlan(labelled=data)
    assert MeasurePlan.model_validate_json(plan.model_dump_json()) == plan
    job = JobSpec(
        attempt_id="a", attempt_no=1, cell_id="c", epoch=1, device_id="d", model_id="m",
        model_sha256="1" * 64, model_bytes=3, delegate="cpu", delegate_kind="cpu", plan=plan,
    )  # fmt: skip
    assert job.files == {"1" * 64: 3, "5" * 64: 7}


def test_the_database_knows_which_data_its_cells_need(database) -> None:
    plan = MeasurePlan(labelled=LabelledData(sha256="5" * 64, size_bytes=7))
    stock(database, asked(("m",)))
    (cell,) = cells(database)
    with database.write() as session:
        session.merge(cell).plan = plan.model_dump(mode="json")
    with database.read() as session:
        named = {found.sha256: (found.size_bytes, found.what) for found in retention.references(session)}
        assert named["5" * 64] == (7, "labelled data")
        assert "5" * 64 not in {r.sha256 for r in retention.references(session, [cell.campaign_no])}
