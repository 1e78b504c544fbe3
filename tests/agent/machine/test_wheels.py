"""Wheels that a host's operator allowed by their hash: unpacked once, or refused with the reason."""

from __future__ import annotations

import importlib.util
import marshal
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent.machine.wheels import MOST_WHEELS, Wheels, unpack, wheel_list
from agent.wire.messages import RELEASES_REFUSED_FACT
from tests.orchestrator.asked import CPU
from tests.services.wheels import build_wheel, listed


def unpacked(folder, *lines):
    (folder / "wheels.txt").write_text("".join(lines))
    return unpack(folder / "wheels.txt", folder / "into")


def test_a_release_is_found_before_the_installed_one_by_its_content(tmp_path):
    wheel = build_wheel(tmp_path, "0.0.1")
    found = unpacked(tmp_path, "# two builds\n", listed(wheel))
    ((name, folder),) = found.folders.items()
    assert (name, found.refused) == ("ai-edge-litert@0.0.1", ())
    assert folder.name == listed(wheel).split()[0]
    script = "from importlib.metadata import version; print(version('ai-edge-litert'))"
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0.0.1"


def test_what_is_unpacked_is_compiled_as_it_lies_there_since_no_runner_may_write(tmp_path):
    (folder,) = unpacked(tmp_path, listed(build_wheel(tmp_path, "0.0.1", broken="def"))).folders.values()
    source = folder / "ai_edge_litert/__init__.py"
    code = marshal.loads(Path(importlib.util.cache_from_source(str(source))).read_bytes()[16:])
    assert code.co_filename == str(source)


def test_what_is_unpacked_stays_although_its_file_goes(tmp_path):
    wheel = build_wheel(tmp_path, "0.0.1")
    line = listed(wheel)
    first = unpacked(tmp_path, line)
    wheel.unlink()
    assert unpacked(tmp_path, line) == first


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda wheel: wheel.write_bytes(wheel.read_bytes() + b"x"), "is allowed"),
        (lambda wheel: wheel.unlink(), "is allowed, and is not there"),
    ],
)
def test_a_wheel_of_another_hash_or_none_is_refused_and_nothing_is_left(tmp_path, damage, said):
    wheel = build_wheel(tmp_path, "0.0.1")
    line = listed(wheel)
    damage(wheel)
    found = unpacked(tmp_path, line)
    assert found.folders == {}
    assert said in found.refused[0]
    assert wheel.name in found.refused[0]
    assert not list((tmp_path / "into").glob("*"))


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ("cp27-cp27m-any", "is for cp27-cp27m"),
        ("py3-none-win_arm32", "is for win_arm32, and this machine is"),
    ],
)
def test_a_wheel_for_another_python_or_machine_is_refused(tmp_path, tags, said):
    assert said in unpacked(tmp_path, listed(build_wheel(tmp_path, "0.0.1", tags=tags))).refused[0]


def test_lines_that_name_no_release_of_their_own_are_refused_one_by_one(tmp_path):
    first = build_wheel(tmp_path, "0.0.1")
    second = build_wheel(tmp_path, "0.0.1", tags="py2.py3-none-any")
    broken = tmp_path / "ai_edge_litert-0.0.2-py3-none-any.whl"
    broken.write_bytes(b"no archive")
    outside = build_wheel(tmp_path, "0.0.3")
    with zipfile.ZipFile(outside, "a") as archive:
        archive.writestr("ai_edge_litert-0.0.3.data/purelib/numpy/__init__.py", "")
    found = unpacked(tmp_path, "ab  x.whl\n", *map(listed, (first, second, broken, outside)))
    assert list(found.folders) == ["ai-edge-litert@0.0.1"]
    for why, said in zip(
        found.refused,
        ("is no line of `sha256sum", "another wheel of the list is", "is no wheel", "outside of its package"),
        strict=True,
    ):
        assert said in why
    assert [folder.name for folder in (tmp_path / "into").iterdir()] == [listed(first).split()[0]]


def test_a_wheel_that_takes_the_name_of_the_installed_farm_is_refused(tmp_path):
    wheel = tmp_path / "delegate_farm-0.1.0+current-py3-none-any.whl"
    wheel.touch()
    found = unpacked(tmp_path, listed(wheel))
    assert found.folders == {}
    assert "'current' is the installed farm; name the wheel's commit" in found.refused[0]


def test_a_commits_results_are_known_by_the_wheels_hash_those_of_litert_by_their_version():
    folders = {"delegate-farm@0a1b2c3": Path("/w", "ab" * 32), "ai-edge-litert@2.2.0": Path("/w", "cd" * 32)}
    assert Wheels(folders).releases() == ("delegate-farm@0a1b2c3+ababababab", "ai-edge-litert@2.2.0")


def test_a_list_that_is_too_long_says_what_is_not_used(tmp_path):
    lines = [f"{number:064x}  a-1-py3-none-any.whl\n" for number in range(MOST_WHEELS + 1)]
    assert unpacked(tmp_path, *lines).refused[-1].endswith(f"only the first {MOST_WHEELS} are used")


def test_the_list_is_an_absolute_path_of_a_file(tmp_path):
    assert wheel_list({}) is None
    (tmp_path / "wheels.txt").touch()
    assert wheel_list({"FARM_RUNNER_WHEELS": f"{tmp_path}/wheels.txt"}) == tmp_path / "wheels.txt"
    for text in ("wheels.txt", f"{tmp_path}/other.txt"):
        with pytest.raises(ValueError, match="FARM_RUNNER_WHEELS"):
            wheel_list({"FARM_RUNNER_WHEELS": text})


def test_a_device_says_which_releases_its_host_has_and_why_others_are_missing():
    releases = {f"litert@{version}": {"litert": version} for version in ("2.3.0", "2.2.0")}
    device = CPU.model_copy(update={"delegate_environments": {"litert": {"runtime": "r"}, **releases}})
    assert device.lacks("litert", {"version": "2.2.0"}) is None
    assert device.environment_of("litert", {"version": "2.2.0"})["litert"] == "2.2.0"
    assert device.environment_of("litert", {})["runtime"] == "r"
    lacking = device.lacks("litert", {"version": "2.1.0"})
    assert lacking == (
        "the host of host-cpu has no release 2.1.0 of litert, but 2.3.0, 2.2.0: its operator allows others "
        "by their wheels, FARM_RUNNER_WHEELS"
    )
    refused = device.model_copy(
        update={"facts": {RELEASES_REFUSED_FACT: "W has the SHA-256 a, and b is allowed"}}
    )
    assert refused.lacks("litert", {"version": "2.1.0"}).endswith(": W has the SHA-256 a, and b is allowed")
    assert device.lacks("cpu", {"version": "2.1.0"}) is None, "an option of another delegate's own"
