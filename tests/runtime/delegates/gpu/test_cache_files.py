import pytest

from runtime.delegates.gpu.cache_files import write_atomically


def test_a_failed_write_leaves_nothing(tmp_path):
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        write_atomically(target, b"content")
    assert list(tmp_path.iterdir()) == [target]
