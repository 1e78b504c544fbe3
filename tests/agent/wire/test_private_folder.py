from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from agent.wire.private_folder import ExposedError, exposure_of, keep_new_files_private, private_folder

FOREIGN = 12345


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_new_folder_is_its_users_alone_whatever_the_umask(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = os.umask(0)
    try:
        private_folder(tmp_path / "home")
    finally:
        os.umask(before)
    assert mode(tmp_path / "home") == 0o700
    assert caplog.messages == [], "it was never open, so there was nothing to close"


def test_new_files_and_folders_are_their_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep_new_files_private()
        (tmp_path / "folder").mkdir()
        (tmp_path / "folder" / "file").touch()
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("folder", "folder/file")] == [0o700, 0o600]


def test_a_folder_of_before_is_closed_to_others_with_all_it_holds_and_one_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside, home = tmp_path / "outside", tmp_path / "home"
    outside.touch(0o644)
    (home / "store").mkdir(parents=True)
    (home / "store" / "model").touch(0o444)
    (home / "farm.db").touch(0o644)
    (home / "link").symlink_to(outside)
    home.chmod(0o755)
    with caplog.at_level(logging.WARNING):
        private_folder(home)
        private_folder(home)
    found = [mode(path) for path in (home, home / "store", home / "store" / "model", home / "farm.db")]
    assert found == [0o700, 0o700, 0o400, 0o600]
    assert mode(outside) == 0o644, "no link leads out of the folder"
    assert [record.getMessage() for record in caplog.records] == [
        f"{home} could be read by others; it and 3 entries in it are now private"
    ]


@pytest.mark.parametrize("writable", [0o775, 0o757, 0o1777])
def test_a_folder_in_which_others_could_write_is_refused_with_the_remedy(
    tmp_path: Path, writable: int
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(writable)
    (home / "farm.toml").touch()
    with pytest.raises(ExposedError, match=rf"mode {writable:o}.*chmod -R go-rwx {home}"):
        private_folder(home)
    (home / "farm.toml").unlink()
    private_folder(home)
    assert mode(home) & 0o777 == 0o700, "an empty one holds nothing that others could have changed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused_with_the_owners_name(tmp_path: Path) -> None:
    os.chown(tmp_path, FOREIGN, FOREIGN)
    exposure = exposure_of(tmp_path)
    assert exposure is not None
    assert exposure.found == f"{tmp_path} belongs to user {FOREIGN}"
    with pytest.raises(ExposedError, match=f"run this as user {FOREIGN}"):
        private_folder(tmp_path)
