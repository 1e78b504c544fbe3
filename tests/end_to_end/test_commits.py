"""Commits of this project as columns of a campaign: each runs the code of its wheel, or says why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import run_farm
from tests.runtime.delegates.peers.small_models import conv_model
from tests.services.known import CPU_ALONE
from tests.services.wheels import commit_wheel, listed

pytestmark = pytest.mark.exhaustive

MANIFEST = """\
version: 1
campaign: commits
defaults:
  measure: {blocks: 1, rounds: 3, slice: {seconds: 0.02}, warmup: {runs: 2, min_seconds: 0}}
models: [{id: conv, source: conv.tflite}]
delegates:
  cpu: {kind: cpu, version: [current, 0a1b2c3, d4e5f60, 7777777], threads: 1}
baseline: {delegate: cpu-current}
"""


def other_protocol(name: str, text: str) -> str:
    """Let the wheel's processes say that they speak another protocol."""
    changed = text.replace("PROTOCOL_VERSION = ", "PROTOCOL_VERSION = 9")
    return changed if name == "agent/wire/messages.py" else text


def another_setting(name: str, text: str) -> str:
    """Let the interpreter tell one setting more, by which a result shows which code ran."""
    if name != "runtime/measure/loading.py":
        return text
    assert '{"precision": "fp32"}' in text
    return text.replace('{"precision": "fp32"}', '{"precision": "fp32", "built_of": "another commit"}')


@pytest.fixture(scope="module")
def ran(tmp_path_factory, wheel) -> tuple[Path, str, dict[str, dict]]:
    folder: Path = tmp_path_factory.mktemp("commits")
    (folder / "conv.tflite").write_bytes(conv_model())
    (folder / "models.yaml").write_text(MANIFEST, encoding="utf-8")
    wheels = [
        commit_wheel(wheel, folder, "0a1b2c3", another_setting),
        commit_wheel(wheel, folder, "d4e5f60", other_protocol, parts=("agent/wire/",)),
        commit_wheel(wheel, folder, "", parts=()),
    ]
    (folder / "wheels.txt").write_text("".join(map(listed, wheels)))
    home, file = folder / "home", str(folder / "models.yaml")
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in {**CPU_ALONE, "FARM_RUNNER_WHEELS": str(folder / "wheels.txt")}.items():
            monkeypatch.setenv(name, value)
        plan = run_farm(home, "submit", file, "--dry-run")
        assert plan.returncode == 0, plan.stdout + plan.stderr
        done = run_farm(home, "submit", file)
        assert done.returncode in (0, 1), done.stdout + done.stderr
        results = run_farm(home, "results", "--format", "json")
        assert results.returncode == 0, results.stderr
    cells = {cell["delegate"]: cell for cell in json.loads(results.stdout)}
    return home, plan.stdout + plan.stderr, cells


def shown(home: Path, cell: dict) -> dict:
    return json.loads(run_farm(home, "show", cell["cell_id"], "--json").stdout)


def test_a_commit_runs_its_own_code_by_turns_with_the_current_one(ran):
    home, _, cells = ran
    current, other = cells["cpu-current"], cells["cpu-0a1b2c3"]
    for cell in (current, other):
        assert cell["status"] == "done", cell["reason"]
        assert cell["accuracy"]["verdict"] == "pass"
        assert cell["installed"]["bytes"] > 0
    assert other["ratio"]["against"] == "cpu-current@host-cpu"
    (sha256,) = (
        line.split()[0]
        for line in (home.parent / "wheels.txt").read_text().splitlines()
        if "+0a1b2c3-" in line
    )
    assert shown(home, other)["environment"]["runtime"] == f"0a1b2c3+{sha256[:10]}"
    assert shown(home, current)["environment"]["runtime"].startswith("0.1.0+")
    assert "another commit" in json.dumps(shown(home, other))
    assert "another commit" not in json.dumps(shown(home, current))


def test_a_commit_without_a_wheel_or_of_another_protocol_ends_before_anything_is_measured(ran):
    _, plan, cells = ran
    for commit in ("d4e5f60", "7777777"):
        cell = cells[f"cpu-{commit}"]
        assert (cell["status"], cell["reason"]["code"]) == ("unsupported", "no_device")
        assert f"no release {commit} of cpu, but current, 0a1b2c3: " in cell["reason"]["text"]
        assert f"no release {commit} of cpu" in plan
    why = cells["cpu-7777777"]["reason"]["text"]
    assert "delegate_farm-0.1.0+d4e5f60-py3-none-any.whl speaks protocol 9" in why
    assert (
        "delegate_farm-0.1.0-py3-none-any.whl names no commit: its version must be like 0.1.0+abc1234" in why
    )
