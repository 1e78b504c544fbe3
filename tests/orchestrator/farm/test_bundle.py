"""Bundles that come from elsewhere: another version, a missing file, names and sizes that none has."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.errors import UsageError
from orchestrator.farm.again.bundle import VERSION, read_bundle

ABOUT = {
    "version": VERSION, "cell_id": "c", "row": {}, "device": "d", "device_name": "D", "environment": {},
}  # fmt: skip
DOCUMENT = {"models": [{"id": "m", "source": "m.tflite"}], "delegates": {"cpu": {"kind": "cpu"}}}


def written(
    folder: Path,
    about: Any = ABOUT,
    document: Any = DOCUMENT,
    packed: int = zipfile.ZIP_STORED,
    **files: bytes,
) -> Path:
    path = folder / "cell.zip"
    with zipfile.ZipFile(path, "w", packed) as archive:
        archive.writestr("bundle.json", json.dumps(about))
        archive.writestr("models.yaml", yaml.safe_dump(document))
        for name, content in files.items():
            archive.writestr(name.replace("_", "."), content)
    return path


def test_a_bundle_names_its_files_where_they_were_put(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    found = read_bundle(written(tmp_path, m_tflite=b"model"), out, 10)
    assert found.document["models"][0]["source"] == str(out / "m.tflite")
    assert (out / "m.tflite").read_bytes() == b"model"
    assert [path.name for path in out.iterdir()] == ["m.tflite"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"about": ABOUT | {"version": VERSION + 1}}, f"a bundle of version {VERSION + 1}; this farm reads"),
        ({"about": {"version": VERSION}}, "not a bundle that can be read"),
        ({"about": []}, "not a bundle that can be read"),
        ({"document": {"models": []}}, "not a bundle that can be read"),
        ({"document": DOCUMENT | {"delegates": {}}}, "not a bundle that can be read"),
        ({"document": DOCUMENT | {"delegates": {"cpu": {}}}}, "not a bundle that can be read: 'kind'"),
        ({"document": {"models": DOCUMENT["models"]}}, "not a bundle that can be read: 'delegates'"),
        ({"document": {"models": [{"source": "../m.tflite"}]}}, "'../m.tflite' is not in it"),
        ({"document": {"models": [{"source": "n.tflite"}]}}, "'n.tflite' is not in it"),
        ({"m_tflite": b"more than ten"}, "m.tflite: more than 10 bytes"),
        ({"packed": zipfile.ZIP_LZMA}, "bundle.json: packed in a form that no bundle has"),
    ],
)
def test_a_bundle_that_none_can_be_is_refused_and_leaves_nothing_outside(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UsageError, match=words.replace(".", r"\.")):
        read_bundle(written(tmp_path, **{"m_tflite": b"model"} | changed), out, 10)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "cell.zip"}


def test_a_damaged_bundle_is_an_error_with_its_reason(tmp_path: Path) -> None:
    path = written(tmp_path, packed=zipfile.ZIP_DEFLATED, m_tflite=b"model")
    whole = path.read_bytes()
    begin = whole.index(b"bundle.json") + len("bundle.json")
    # A block of deflate of the reserved type.
    path.write_bytes(whole[:begin] + b"\xff" + whole[begin + 1 :])
    with pytest.raises(UsageError, match=r"not a bundle that can be read: .*invalid block type"):
        read_bundle(path, tmp_path, 10)
    # The list says that more bytes follow than the file has.
    path = written(
        tmp_path, document={**DOCUMENT, "models": [{"id": "m", "source": "m.tflite"}]}, m_tflite=b"model"
    )
    whole = bytearray(path.read_bytes())
    listed = whole.index(b"PK\x01\x02")
    for at in (listed + 20, listed + 24):
        whole[at : at + 4] = (1 << 20).to_bytes(4, "little")
    path.write_bytes(whole)
    with pytest.raises(UsageError, match="not a bundle that can be read"):
        read_bundle(path, tmp_path, 10)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cell.zip"
    path.write_bytes(b"text")
    with pytest.raises(UsageError, match="not a bundle that can be read"):
        read_bundle(path, tmp_path, 10)
    with pytest.raises(UsageError, match=r"not a bundle that can be read: .*No such file"):
        read_bundle(tmp_path / "none.zip", tmp_path, 10)
