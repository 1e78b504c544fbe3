"""Sources of models: files, skeletons, the zoo, and wheels fetched by a real pip without a network."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.manifest.campaign import ModelEntry
from orchestrator.sources.pypi import Wheel
from orchestrator.sources.resolve import check_all, resolve, resolve_all
from orchestrator.sources.store import Store
from orchestrator.sources.zoo import zoo_folder, zoo_models
from runtime.model.reader import load_model
from tests.needs import REPOSITORY
from tests.runtime.api.test_interpreter_api import two_signatures

MODEL = b"\x1c\x00\x00\x00TFL3" + bytes(range(200))
OTHER = b"\x1c\x00\x00\x00TFL3" + bytes(200)
MEMBER = "tiny_models/detect.tflite"
SOURCE = f"pypi:tiny-models==1.2!{MEMBER}"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def build_wheel(folder: Path, version: str, tag: str, members: dict[str, bytes]) -> Path:
    """Build a wheel as pip accepts it, with nothing but zipfile."""
    info = f"tiny_models-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    path = folder / f"tiny_models-{version}-{tag}.whl"
    texts = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tiny-models\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in {**members, **texts}.items():
            wheel.writestr(name, content)
    return path


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that pip downloads from; it has no other index."""
    folder = tmp_path / "wheels"
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    build_wheel(folder, "1.2", "py3-none-any", {MEMBER: MODEL, "tiny_models/other.tflite": OTHER})
    return folder


@pytest.fixture
def fetched(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of `wheels`, from which a wheel is copied: tests of what is done with one, once it is
    there, need no start of pip for each.
    """

    def fetch(wheel: Wheel, folder: Path, _note: Callable[[str], None]) -> Path:
        (found,) = wheels.glob(f"tiny_models-{wheel.version}-*.whl")
        return Path(shutil.copy(found, folder))

    monkeypatch.setattr(import_module("orchestrator.sources.resolve"), "download", fetch)
    return wheels


def test_a_local_file_is_hashed_and_stored(tmp_path: Path, store: Store) -> None:
    (tmp_path / "m.tflite").write_bytes(MODEL)
    model = resolve(ModelEntry("m", "m.tflite"), store, tmp_path)
    assert (model.id, model.sha256, model.size_bytes) == ("m", sha256(MODEL), len(MODEL))
    assert model.origin == "m.tflite"
    assert store.path(model.sha256).read_bytes() == MODEL


def test_a_damaged_model_is_stored_with_its_problem(tmp_path: Path, store: Store) -> None:
    (tmp_path / "m.tflite").write_bytes(MODEL)
    model = resolve(ModelEntry("m", "m.tflite"), store, tmp_path)
    assert model.problem
    assert store.find(model.sha256)


def test_nothing_is_stored_when_one_of_several_models_cannot_be_used(tmp_path: Path, store: Store) -> None:
    (tmp_path / "a.tflite").write_bytes(MODEL)
    (tmp_path / "b.tflite").write_bytes(OTHER)
    good = ModelEntry("a", "a.tflite")
    for bad, words in (
        (ModelEntry("b", "none.tflite"), r"none\.tflite: no such file"),
        (ModelEntry("b", "."), "not a file but a folder"),
        (ModelEntry("b", "/dev/zero"), "not a file but a device"),
        (ModelEntry("b", "b.tflite", sha256="0" * 64), "wrong sha256"),
        (ModelEntry("b", "zoo:torchvision_resnet19"), "did you mean 'torchvision_resnet18'"),
        (ModelEntry("b", "zoo:torchvision_resnet18", sha256="0" * 64), "wrong sha256"),
        (ModelEntry("b", "pypi:--index==1!x"), "expected pypi:NAME==VERSION!MEMBER"),
    ):
        with pytest.raises(UsageError, match=words):
            resolve_all(check_all([good, bad], tmp_path), store)
        assert not store.root.exists()


DEMO = {
    "torchvision_mobilenet_v2",
    "torchvision_mobilenet_v3_small",
    "torchvision_resnet18",
    "torchvision_squeezenet1_1",
    "torchvision_efficientnet_b0",
    "torchvision_mobilenet_v2__static_int8",
}
PERMISSIVE = {"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "CC-BY-4.0"}


def test_a_signature_is_stored_as_a_model_of_its_own_whose_names_are_its_own(
    tmp_path: Path, store: Store
) -> None:
    content = two_signatures()
    (tmp_path / "m.tflite").write_bytes(content)
    entry = ModelEntry("m", "m.tflite", sha256=sha256(content), signature="alone")
    found = resolve(entry, store, tmp_path)
    assert found.problem is None
    assert found.sha256 != sha256(content), "the pin is of the file, the stored model is the graph's"
    (graph, *_) = load_model(store.path(found.sha256)).subgraphs
    assert [graph.tensors[index].name for index in graph.inputs] == ["value"]
    with pytest.raises(
        UsageError, match=r"m\.tflite: signature 'x': no signature 'x'; the model has pair, alone"
    ):
        resolve(replace(entry, signature="x"), store, tmp_path)


def test_the_zoo_lists_every_skeleton_with_its_source_and_a_permissive_licence() -> None:
    models = zoo_models()
    assert set(models) > DEMO
    assert zoo_folder() == REPOSITORY / "examples" / "zoo"
    assert {p.name for p in zoo_folder().glob("*.skel")} == {m.skeleton.name for m in models.values()}
    assert {part for m in models.values() for part in m.licence.split(" AND ")} <= PERMISSIVE
    assert all(m.source for m in models.values())


def test_the_zoo_restores_the_indexed_bytes(tmp_path: Path, store: Store) -> None:
    for name in sorted(DEMO):
        listed = zoo_models()[name]
        model = resolve(ModelEntry(name, f"zoo:{name}"), store, tmp_path)
        assert (model.sha256, model.size_bytes) == (listed.sha256, listed.size_bytes)
        assert model.problem is None


def test_a_skeleton_is_restored_and_restored_once(tmp_path: Path, store: Store) -> None:
    listed = zoo_models()["torchvision_squeezenet1_1"]
    path = tmp_path / "net.skel"
    path.write_bytes(listed.skeleton.read_bytes())
    notes: list[str] = []
    (model,) = resolve_all(check_all([ModelEntry("m", "net.skel")], tmp_path), store, notes.append)
    assert model.sha256 == listed.sha256
    stored = store.path(model.sha256).stat()
    assert resolve(ModelEntry("m", "net.skel"), store, tmp_path) == model
    assert store.path(model.sha256).stat() == stored
    with pytest.raises(UsageError, match="wrong sha256"):
        resolve(ModelEntry("m", "net.skel", sha256="0" * 64), store, tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", gzip.compress(b"SKEL0001"), gzip.compress(b"SKEL9999" + bytes(64))],
    ids=["empty", "not_gzip", "no_header", "other_version"],
)
def test_a_damaged_skeleton_is_a_usage_error(tmp_path: Path, store: Store, content: bytes) -> None:
    (tmp_path / "net.skel").write_bytes(content)
    with pytest.raises(UsageError, match=r"net\.skel: not a skeleton"):
        resolve(ModelEntry("m", "net.skel"), store, tmp_path)


def test_a_member_of_a_wheel_is_fetched_without_installing(
    tmp_path: Path, store: Store, wheels: Path
) -> None:
    model = resolve(ModelEntry("m", SOURCE, sha256=sha256(MODEL)), store, tmp_path)
    assert store.path(model.sha256).read_bytes() == MODEL
    with pytest.raises(ModuleNotFoundError):
        __import__("tiny_models")


def test_a_second_submit_downloads_nothing(tmp_path: Path, store: Store, wheels: Path) -> None:
    first = resolve(ModelEntry("m", SOURCE), store, tmp_path)
    for wheel in wheels.glob("*.whl"):
        wheel.unlink()
    assert resolve(ModelEntry("m", SOURCE), store, tmp_path) == first
    with pytest.raises(UsageError, match="wrong sha256"):
        resolve(ModelEntry("m", SOURCE, sha256="0" * 64), store, tmp_path)


def test_members_of_one_wheel_share_one_download(tmp_path: Path, store: Store, wheels: Path) -> None:
    notes: list[str] = []
    entries = [ModelEntry("a", SOURCE), ModelEntry("b", SOURCE.replace("detect", "other"))]
    a, b = resolve_all(check_all(entries, tmp_path), store, notes.append)
    assert (a.sha256, b.sha256) == (sha256(MODEL), sha256(OTHER))
    assert notes == ["downloading tiny-models==1.2"]


def test_platform_and_python_choose_the_wheel(tmp_path: Path, store: Store, wheels: Path) -> None:
    build_wheel(wheels, "2.0", "cp39-cp39-manylinux_2_28_aarch64", {MEMBER: OTHER})
    source = SOURCE.replace("1.2", "2.0")
    with pytest.raises(UsageError, match=r"tiny-models==2\.0: no such version .*: 1\.2$"):
        resolve(ModelEntry("m", source), store, tmp_path)
    entry = ModelEntry("m", source, platform="manylinux_2_28_aarch64", python="3.9")
    assert resolve(entry, store, tmp_path).sha256 == sha256(OTHER)


def test_a_source_distribution_is_never_taken(tmp_path: Path, store: Store, wheels: Path) -> None:
    trap = tmp_path / "ran"
    setup = f"open({str(trap)!r}, 'w')"
    (tmp_path / "setup.py").write_text(setup)
    import tarfile

    with tarfile.open(wheels / "tiny_models-9.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "setup.py", "tiny_models-9.0/setup.py")
    with pytest.raises(UsageError, match="no such version"):
        resolve(ModelEntry("m", SOURCE.replace("1.2", "9.0")), store, tmp_path)
    assert not trap.exists()


def test_a_missing_member_is_a_clear_error(tmp_path: Path, store: Store, fetched: Path) -> None:
    for source, words in (
        (SOURCE.replace("detect", "detekt"), f"no such member in .*; did you mean '{MEMBER}'"),
        (SOURCE.replace("tiny_models/detect", "detect"), f"did you mean '{MEMBER}'"),
    ):
        with pytest.raises(UsageError, match=words):
            resolve(ModelEntry("m", source), store, tmp_path)


def test_a_missing_version_or_project_is_a_clear_error(tmp_path: Path, store: Store, wheels: Path) -> None:
    for source, words in (
        (SOURCE.replace("1.2", "1.3"), r"no such version has a wheel for it; the newest that do: 1\.2"),
        (SOURCE.replace("tiny-models", "no-such-models"), "the package index has no wheel of that name"),
    ):
        with pytest.raises(UsageError, match=words):
            resolve(ModelEntry("m", source), store, tmp_path)


def test_a_member_with_another_hash_is_refused(tmp_path: Path, store: Store, fetched: Path) -> None:
    with pytest.raises(UsageError) as caught:
        resolve(ModelEntry("m", SOURCE, sha256=sha256(OTHER)), store, tmp_path)
    assert f"expected {sha256(OTHER)}" in str(caught.value)
    assert f"found    {sha256(MODEL)}" in str(caught.value)
    assert store.find(sha256(MODEL)) is None


def test_a_member_that_inflates_beyond_the_limit_is_refused(tmp_path: Path, fetched: Path) -> None:
    path = fetched / "tiny_models-3.0-py3-none-any.whl"
    build_wheel(fetched, "3.0", "py3-none-any", {})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr(MEMBER, bytes(20_000_000))
    small = Store(tmp_path / "small", max_bytes=1_000_000)
    with pytest.raises(UsageError, match="larger than 1000000 bytes"):
        resolve(ModelEntry("m", SOURCE.replace("1.2", "3.0")), small, tmp_path)


def test_a_member_whose_bytes_are_damaged_is_refused(tmp_path: Path, store: Store, fetched: Path) -> None:
    (path,) = fetched.glob("*.whl")
    content = path.read_bytes()
    path.write_bytes(content.replace(MODEL, MODEL[:-1] + b"!"))
    with pytest.raises(UsageError, match="cannot be read as a wheel"):
        resolve(ModelEntry("m", SOURCE), store, tmp_path)


def test_an_index_that_cannot_be_reached_is_said_so(
    tmp_path: Path, store: Store, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(UnreachableError, match="the package index cannot be reached"):
        resolve(ModelEntry("m", SOURCE), store, tmp_path)


def test_a_damaged_memory_of_sources_is_ignored(tmp_path: Path, store: Store, fetched: Path) -> None:
    model = resolve(ModelEntry("m", SOURCE), store, tmp_path)
    for content in ("", "{}", "[]", '{"sha256": "../x"}', json.dumps({"key": "other", "sha256": "0" * 64})):
        for path in (store.root / "sources").iterdir():
            path.write_text(content)
        assert resolve(ModelEntry("m", SOURCE), store, tmp_path) == model


def test_a_store_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(MODEL)
    (tmp_path / "store").write_text("a file where the folder should be")
    with pytest.raises(FarmError, match="cannot be copied to the store"):
        resolve(ModelEntry("m", "m.tflite"), Store(tmp_path / "store"), tmp_path)
