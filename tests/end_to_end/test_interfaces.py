"""`examples/interfaces.yaml` here: each interface and release has figures, or the reason for none."""

from __future__ import annotations

import json
from importlib.metadata import version

import pytest

from tests.end_to_end.conftest import run_farm
from tests.needs import REPOSITORY
from tests.services.known import ALONE
from tests.services.wheels import build_wheel, listed

RELEASE = "2.2.0"
"""The release that the example measures beside the installed one."""


@pytest.mark.exhaustive
def test_every_interface_and_release_is_measured_or_says_why_not(tmp_path, monkeypatch):
    (tmp_path / "wheels.txt").write_text(listed(build_wheel(tmp_path, RELEASE)))
    for name, value in {**ALONE, "FARM_RUNNER_WHEELS": str(tmp_path / "wheels.txt")}.items():
        monkeypatch.setenv(name, value)
    home, file = tmp_path / "home", str(REPOSITORY / "examples/interfaces.yaml")
    done = run_farm(home, "submit", file)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    cells = json.loads(run_farm(home, "results", "--format", "json").stdout)
    found = {cell["delegate"]: cell for cell in cells}
    releases = (RELEASE, version("ai-edge-litert"))
    apis = [f"litert-{one}-{api}" for one in releases for api in ("interpreter", "compiled_model")]
    assert set(found) == {
        "gpu-opencl-passive", "gpu-opencl-active", "gpu-vulkan-passive", "gpu-opengl-passive", *apis,
    }  # fmt: skip
    for name, cell in found.items():
        assert cell["status"] in ("done", "unsupported"), (name, cell["reason"])
        if cell["status"] == "done":
            assert cell["accuracy"]["verdict"] == "pass", name
        else:
            assert cell["reason"]["text"], name
    assert {found[name]["status"] for name in apis} == {"done"}
