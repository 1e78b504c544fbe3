"""A served site follows the results."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.request import urlopen

import pytest

from orchestrator.errors import UsageError
from orchestrator.site.serve import serve_site


def test_a_served_site_is_built_again_when_something_is_new_and_only_then(tmp_path):
    built, said = [], []

    def build() -> Path:
        built.append(len(built))
        (tmp_path / "index.html").write_text(f"build {len(built)}")
        return tmp_path / "index.html"

    def page() -> str:
        address = said[0].split()[1]
        with urlopen(address) as answer:
            assert answer.headers["Cache-Control"] == "no-cache"
            return answer.read().decode()

    pages = []
    looks = iter(["first", "first", "first", "second", "second"])

    def newest() -> str:
        if said:
            pages.append(page())
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        serve_site(build, newest, 0, said.append, look_s=0)
    assert pages == ["build 1", "build 1", "build 1", "build 2", "build 2"]
    assert said[1:] == ["built again: new results"]


def test_a_port_that_is_taken_is_said(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"port {port}: .*--port"):
            serve_site(lambda: tmp_path / "index.html", lambda: 0, port, print)
