"""Own inputs from the campaign file to job, fingerprint and store; misfits are told with their file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from agent.wire.messages import JobSpec
from agent.wire.plan import INPUT_SETS, InputSpec, MeasurePlan
from orchestrator.db.campaigns import retention
from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import ModelEntry
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import ManifestError
from orchestrator.sources.own_inputs import MOST_PIXELS, with_inputs
from orchestrator.sources.resolve import check_all, resolve_all
from orchestrator.sources.store import Store
from orchestrator.sources.web import Web
from runtime.measure.inputs import POOL_SIZE
from runtime.model.schema import BuiltinOperator
from tests.orchestrator.asked import asked
from tests.orchestrator.stocked import cells, stock
from tests.runtime.models import Builder
from tests.services.https_server import Answer, HttpsServer

Op = BuiltinOperator


def model_file(shape: tuple[int, ...], dtype: type = np.float32, **more: object) -> bytes:
    b = Builder()
    x = b.input(dtype, shape, name="x", **more)
    y = b.tensor(dtype, shape)
    b.operator(Op.ABS, [x], [y])
    return b.write([y])


def planned(folder: Path, entry: str, model: bytes) -> ModelEntry:
    (folder / "m.tflite").write_bytes(model)
    path = folder / "models.yaml"
    path.write_text(
        "version: 1\ncampaign: c\ndelegates: {cpu: {kind: cpu}}\n"
        f"models:\n  - id: m\n    source: m.tflite\n    {entry}\n"
    )
    campaign = load_manifest(path)
    store, checked = Store(folder / "store"), check_all(campaign.models, folder)
    models = resolve_all(checked, store)
    found, (stored,) = with_inputs(campaign, models, folder, store, lambda _: None, Web(allow_private=True))
    assert stored.unreachable is None
    return found.models[0]


def samples(folder: Path, entry: ModelEntry) -> np.ndarray:
    data = entry.inputs["x"].data
    assert data is not None
    path = Store(folder / "store").path(data.sha256)
    assert data.size_bytes == path.stat().st_size
    return np.load(path)


def test_ids_get_the_rows_of_their_table_unless_a_range_is_given(tmp_path: Path) -> None:
    b = Builder()
    ids = b.input(np.int32, (3,), name="ids")
    out = b.tensor(np.float32, (3, 2))
    b.operator(Op.EMBEDDING_LOOKUP, [ids, b.constant(np.zeros((7, 2), np.float32))], [out])
    model = b.write([out])
    assert planned(tmp_path, "reuse: never", model).inputs == {"ids": InputSpec(low=0, high=6)}
    own = planned(tmp_path, "inputs: {ids: {random: {range: [0, 2]}}}", model)
    assert own.inputs == {"ids": InputSpec(low=0, high=2)}


VALUES = np.arange(12, dtype=np.float32).reshape(3, 1, 4)


@pytest.mark.parametrize("form", ["sample.npy", "batch.npy", "named.npz", "sole.npz", "raw.bin", "list"])
def test_files_of_every_form_become_samples_of_the_input(tmp_path: Path, form: str) -> None:
    np.save(tmp_path / "sample.npy", VALUES[0])
    np.save(tmp_path / "batch.npy", VALUES)
    np.savez(tmp_path / "named.npz", x=VALUES, other=np.zeros(3))
    np.savez(tmp_path / "sole.npz", anything=VALUES[:, 0])
    (tmp_path / "raw.bin").write_bytes(VALUES.tobytes())
    data = "[sample.npy, batch.npy]" if form == "list" else form
    entry = planned(tmp_path, f"inputs: {{x: {{data: {data}}}}}", model_file((1, 4)))
    expected = {"sample.npy": VALUES[:1], "list": np.concatenate([VALUES[:1], VALUES])}.get(form, VALUES)
    np.testing.assert_array_equal(samples(tmp_path, entry), expected)
    assert entry.plan.input_sets == INPUT_SETS == POOL_SIZE


def test_a_file_behind_an_address_is_read_to_its_end(tmp_path: Path, server: HttpsServer) -> None:
    # 300,000 bytes arrive in many pieces, and each prefix of 16 bytes would be a sample too.
    values = np.arange(75_000, dtype=np.float32).reshape(-1, 1, 4)
    server.pages["/raw.bin"] = Answer(values.tobytes())
    entry = f"input_sets: 2\n    inputs: {{x: {{data: '{server.url}/raw.bin'}}}}"
    np.testing.assert_array_equal(samples(tmp_path, planned(tmp_path, entry, model_file((1, 4)))), values)


def test_more_samples_than_sets_give_more_sets_unless_the_file_says_how_many(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((7, 1, 4), np.float32))
    assert planned(tmp_path, "inputs: {x: {data: a.npy}}", model_file((1, 4))).plan.input_sets == 7
    entry = "{input_sets: 5, inputs: {x: {data: a.npy}}}"[1:-1].replace(", inputs", "\n    inputs")
    assert planned(tmp_path, entry, model_file((1, 4))).plan.input_sets == 5


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((1, 2, 2, 3), np.float32, (255 - 127.5) / 127.5),
        ((1, 3, 2, 2), np.float32, (255 - 127.5) / 127.5),
        ((1, 2, 2, 1), np.uint8, 76),
        ((1, 2, 2, 3), np.int8, 127),
    ],
)
def test_a_picture_is_scaled_and_normalised_for_an_image_model(tmp_path, shape, dtype, expected) -> None:
    Image.new("RGB", (6, 4), (255, 0, 0)).save(tmp_path / "red.png")
    entry = planned(tmp_path, "inputs: {x: {data: red.png}}", model_file(shape, dtype))
    found = samples(tmp_path, entry)
    assert (found.shape, found.dtype) == ((1, *shape), dtype)
    assert found.reshape(-1)[0] == expected


BAD = {
    "shape": ("a.npy", (1, 5), r"m: input 'x': a.npy: is \[1, 4\]; the model takes \[1, 5\]"),
    "type": ("wide.npy", (1, 4), "wide.npy: is float64; the model takes float32"),
    "no array": ("two.npz", (1, 4), "two.npz: no array 'x'; it has a, b"),
    "raw size": ("short.bin", (1, 4), r"short.bin: 15 bytes; a sample of float32 \[1, 4\] has 16"),
    "unnamed raw": ("short", (1, 4), r"short: neither .npy nor .npz .* name that ends with .bin or .raw"),
    "linked raw": ("link.bin", (1, 4), "link.bin: neither .npy nor .npz"),
    "objects": ("objects.npy", (1, 4), "objects.npy: not a plain .npy array"),
    "damaged": ("damaged.png", (1, 2, 2, 3), "damaged.png: not a picture that can be decoded"),
    "vast": ("vast.png", (1, 2, 2, 3), f"vast.png: 10000 x 10000 pixels; at most {MOST_PIXELS}"),
    "no image model": ("red.png", (1, 4), r"red.png: a picture is for an input \[1, height, width, 1 or 3\]"),
    "mixed": ("[a.npy, short16.bin]", (1, 4), "mixed formats: a.npy is npy, short16.bin is raw bytes"),
    "absent": ("absent.npy", (1, 4), "absent.npy: no such file"),
    "hash": (f"a.npy, sha256: {'0' * 64}", (1, 4), "a.npy: wrong sha256"),
}


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    np.save(folder / "a.npy", VALUES[0])
    np.save(folder / "wide.npy", VALUES[0].astype(np.float64))
    np.savez(folder / "two.npz", a=VALUES, b=VALUES)
    (folder / "short.bin").write_bytes(bytes(15))
    (folder / "short16.bin").write_bytes(bytes(16))
    (folder / "short").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(folder / "short")
    np.save(folder / "objects.npy", np.array([None]), allow_pickle=True)
    Image.new("RGB", (6, 4)).save(folder / "red.png")
    (folder / "damaged.png").write_bytes((folder / "red.png").read_bytes()[:40])
    Image.new("1", (10_000, 10_000)).save(folder / "vast.png")
    return folder


@pytest.mark.filterwarnings("ignore:Image size")
@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_said_with_the_file_and_the_reason(bad: Path, case: str) -> None:
    data, shape, said = BAD[case]
    with pytest.raises(UsageError, match=said):
        planned(bad, f"inputs: {{x: {{data: {data}}}}}", model_file(shape))


def test_open_sizes_need_a_shape_where_the_file_tells_none(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(VALUES.tobytes())
    model = model_file((1, 1), shape_signature=(1, -1))
    with pytest.raises(UsageError, match=r"open sizes \[1, -1\]; write `shape"):
        planned(tmp_path, "inputs: {x: {data: a.bin}}", model)
    entry = planned(tmp_path, "inputs: {x: {data: a.bin, shape: [1, 4]}}", model)
    assert entry.inputs["x"].shape == (1, 4)
    np.save(tmp_path / "a.npy", VALUES[0])
    assert planned(tmp_path, "inputs: {x: {data: a.npy}}", model).inputs["x"].shape == (1, 4)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("inputs: {x: {data: a.npy, random: {seed: 1}}}", "two ways to fill an input"),
        (f"inputs: {{x: {{data: [a.npy, b.npy], sha256: {'0' * 64}}}}}", "pins the only file"),
        ("inputs: {x: {random: {distribution: gauss}}}", "unknown distribution 'gauss'"),
        ("input_sets: 1", "at least 2"),
    ],
)
def test_mistakes_in_the_file_are_said_with_their_place(tmp_path: Path, entry: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        planned(tmp_path, entry, model_file((1, 4)))


def test_data_is_part_of_the_job_and_of_the_fingerprint_and_leaves_others_as_they_were(
    tmp_path: Path,
) -> None:
    np.save(tmp_path / "a.npy", VALUES[0])
    entry = planned(tmp_path, "inputs: {x: {data: a.npy}}", model_file((1, 4)))
    spec = entry.inputs["x"]
    assert spec.data is not None
    assert spec.data.sha256 in spec.model_dump_json()
    assert InputSpec.model_validate_json(spec.model_dump_json()) == spec
    assert InputSpec(seed=1).model_dump(mode="json") == {"shape": None, "seed": 1, "low": None, "high": None}
    assert "input_sets" not in MeasurePlan().model_dump_json()
    job = JobSpec(
        attempt_id="a", attempt_no=1, cell_id="c", epoch=1, device_id="d", model_id="m",
        model_sha256="1" * 64, model_bytes=3, delegate="cpu", delegate_kind="cpu", inputs=entry.inputs,
    )  # fmt: skip
    assert job.files == {"1" * 64: 3, spec.data.sha256: spec.data.size_bytes}
    stored = (Store(tmp_path / "store").path(spec.data.sha256)).read_bytes()
    assert hashlib.sha256(stored).hexdigest() == spec.data.sha256


def test_the_database_knows_which_data_its_cells_need(database) -> None:
    spec = InputSpec.model_validate({"data": {"sha256": "5" * 64, "size_bytes": 7}})
    stock(database, asked(("m",)))
    (cell,) = cells(database)
    with database.write() as session:
        session.merge(cell).inputs = {"x": spec.model_dump_json()}
    with database.read() as session:
        named = {found.sha256: (found.size_bytes, found.what) for found in retention.references(session)}
        assert named["5" * 64] == (7, "data of an input")
        assert "5" * 64 not in {r.sha256 for r in retention.references(session, [cell.campaign_no])}
