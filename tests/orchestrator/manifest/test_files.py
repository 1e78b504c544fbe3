"""A campaign file may be missing, damaged or too large: a clear error follows, nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.manifest.document import MAX_FILE_BYTES, read_bytes
from orchestrator.manifest.load import load_manifest
from tests.orchestrator.manifest.manifests import FULL, load


@pytest.mark.parametrize("content", [b"a" * (1024 * 1024 + 1), b"a: [" * 500_000])
def test_a_file_over_one_mebibyte_is_refused_unread(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "models.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="larger than 1048576 bytes"):
        load_manifest(path)


def test_a_file_of_just_one_mebibyte_is_read(tmp_path: Path) -> None:
    path = tmp_path / "models.yaml"
    path.write_bytes(b" " * MAX_FILE_BYTES)
    assert len(read_bytes(path)) == MAX_FILE_BYTES


def test_a_missing_file_and_a_folder_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_manifest(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        load_manifest(tmp_path)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_damaged_files_end_in_a_campaign_or_in_one_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(FULL.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content) - 1))
        end = data.draw(st.integers(start, min(len(content), start + 8)))
        content[start:end] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"[", b"{", b"&a ", b"*a", b": "])
        )
    with suppress(UsageError):
        assert load(tmp_path, bytes(content)).models
