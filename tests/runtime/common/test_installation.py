"""The command that a message prints for a missing extra works where this package was installed from."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.common.installation import install_command

FROM_A_CLONE = {"url": "file:///srv/my%20farm", "dir_info": {"editable": True}}
FROM_A_FOLDER = {"url": "file:///srv/farm", "dir_info": {}}
FROM_A_WHEEL = {"url": "file:///w/delegate_farm-0.1-py3-none-any.whl", "archive_info": {}}
FROM_GIT = {"url": "https://host.example/farm.git", "vcs_info": {"vcs": "git", "commit_id": "5" * 40}}


@pytest.mark.parametrize(
    ("record", "arguments"),
    [
        (FROM_A_CLONE, ["-e", "/srv/my farm[peers]"]),
        (FROM_A_FOLDER, ["/srv/farm[peers]"]),
        (FROM_A_WHEEL, ["/w/delegate_farm-0.1-py3-none-any.whl[peers]"]),
        (FROM_GIT, ["delegate-farm[peers] @ git+https://host.example/farm.git"]),
        (None, ["delegate-farm[peers]"]),
    ],
    ids=["clone", "folder", "wheel", "git", "index"],
)
def test_an_extra_comes_from_where_the_package_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: dict[str, Any] | None, arguments: list[str]
) -> None:
    folder = tmp_path / "delegate_farm-0.1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: delegate-farm\nVersion: 0.1\n")
    if record is not None:
        (folder / "direct_url.json").write_text(json.dumps(record))
    monkeypatch.syspath_prepend(tmp_path)
    assert shlex.split(install_command("peers")) == [sys.executable, "-I", "-m", "pip", "install", *arguments]
