"""Devices behind a real `sshd` on this machine, as a file's `ENTRIES` list them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from agent.attached.listing import EVALUATION
from tests.agent.attached.devices import PRINTS, Board, script
from tests.agent.embedded_agent import EmbeddedAgent, put_model
from tests.services.sshd import sshd, tool_of_this_project

FILES = {"folder", "benchmark_model", "evaluation"}
"""Keys of an entry that name files of the device."""


@pytest.fixture(scope="module")
def board(request, tmp_path_factory, probed, tiny) -> Iterator[Board]:
    """Start an agent with a device for each of `ENTRIES`, by name: what differs from one whose tool a test
    writes. Its files are named from one folder, which has this project's tools.
    """
    folder = tmp_path_factory.mktemp("board")
    (folder / "on board").mkdir()
    tool_of_this_project(folder)
    (folder / "scripts").mkdir()
    for name in EVALUATION:
        (folder / "scripts" / name).symlink_to(folder / "scripts" / "tool")
    script(folder / "scripts" / "tool", "exit 1")
    with sshd(tmp_path_factory.mktemp("sshd")) as server, pytest.MonkeyPatch.context() as patch:
        text = ""
        for name, own in request.module.ENTRIES.items():
            entry = {"kind": "ssh", "name": name, "host": "board", "ssh_config": str(server.config)}
            entry |= {"folder": "on board", "benchmark_model": "tool", **own}
            entry |= {key: f"{folder}/{entry[key]}" for key in FILES & entry.keys()}
            lines = (f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
            text += f'[[attached]]\n{"".join(lines)}delegates = ["litert", "litert-gpu"]\n'
        (folder / "attached.toml").write_text(text)
        patch.setenv("FARM_ATTACHED", str(folder / "attached.toml"))
        found = Board(folder, put_model(folder / "store", tiny), server)
        found.says(PRINTS)
        found.agent = EmbeddedAgent(folder, probe_command=probed)
        yield found
        found.agent.close()
