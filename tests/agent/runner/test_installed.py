"""The installed bytes of a delegate are those of its files, and unknown sizes have a reason."""

from __future__ import annotations

import json
import sys

import pytest

from agent.runner.probe.host import installed, sources
from runtime.delegates import registry
from runtime.delegates.descriptor import INTERPRETER

MODULE = """\
from runtime.delegates.descriptor import DelegateDescriptor
DESCRIPTOR = DelegateDescriptor(name="measured", implementation=None, packages={packages!r})
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Lay out an installed package with the delegate `measured`, as pip does."""

    def lay_out(packages: tuple[str, ...] = (), **origin: object) -> int:
        module = MODULE.format(packages=packages)
        info = tmp_path / "measured_delegate-1.0.dist-info"
        info.mkdir()
        files = {
            "measured_delegate_module.py": module,
            f"{info.name}/METADATA": "Metadata-Version: 2.1\nName: measured-delegate\nVersion: 1.0\n",
            f"{info.name}/entry_points.txt": (
                "[delegate_farm.delegates]\nmeasured = measured_delegate_module:DESCRIPTOR\n"
            ),
            f"{info.name}/direct_url.json": json.dumps(origin),
        }
        files[f"{info.name}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info.name}/RECORD"])
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        monkeypatch.syspath_prepend(tmp_path)
        # A process looks once for what is installed: here it changes from test to test.
        registry._entry_point.cache_clear()
        return sum(map(len, files.values()))

    yield lay_out
    sys.modules.pop("measured_delegate_module", None)
    registry._entry_point.cache_clear()


def test_of_our_delegates_the_files_that_they_execute_count():
    found = installed("cpu")
    assert found.bytes == sum(path.stat().st_size for path in sources(INTERPRETER))
    assert found.note == ""


def test_a_peer_is_as_large_as_its_package():
    assert installed("litert").bytes > 10_000_000, "the library alone has tens of megabytes"


def test_a_foreign_delegate_is_as_large_as_the_package_that_brings_it(package):
    size = package()
    assert installed("measured").bytes == size


def test_a_package_that_links_to_its_sources_has_no_size(package):
    package(dir_info={"editable": True}, url="file:///somewhere")
    found = installed("measured")
    assert found.bytes is None
    assert found.note == "the package measured-delegate is installed as a link to its sources"


def test_a_package_that_is_not_there_is_named(package):
    package(packages=("no-such-package",))
    found = installed("measured")
    assert (found.bytes, found.note) == (None, "the package no-such-package is not installed")
