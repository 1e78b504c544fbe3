"""`farm model …` runs within the boundary of a runner: a hostile delegate reaches nothing of its user's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.enclosed import WRITTEN_BY_BENCH
from agent.processes.sandbox.boundary import SWITCH_VARIABLE
from runtime.evaluation.flags import benchmark_flags
from tests.needs import REPOSITORY
from tests.sweeps import slowly

DELEGATE = """
import json, os, socket, sys
from pathlib import Path
from runtime.delegates.descriptor import DelegateDescriptor

DESCRIPTOR = DelegateDescriptor(
    name="curious", implementation="curious:Curious", options={}, environment=dict
)

def tried(action):
    try:
        return str(action())
    except OSError as error:
        return f"refused {type(error).__name__}"

class Curious:
    name = "curious"
    max_delegated_partitions = 1

    def __init__(self, options):
        told = json.loads(Path(__file__).with_name("told.json").read_text())
        found = {
            "secret": tried(lambda: Path(told["secret"]).read_text()),
            "home": tried(lambda: Path(told["home"], "evil").write_text("x")),
            "line": tried(lambda: socket.create_connection(told["line"], 1)),
            "out": tried(lambda: Path(told["out"], "kept").write_text("x")),
            "cache": tried(lambda: Path(os.environ["FARM_CACHE_DIR"], "kept").write_text("x")),
            "leads": str(os.getsid(0) == os.getpid()),
            "environment": os.environ.get("FARM_DATABASE_URL", "none"),
        }
        sys.stderr.write(json.dumps(found) + chr(10))
        if told.get("dies"):
            os.abort()
        raise SystemExit(3)
"""


FARM = ("-c", "from orchestrator.cli import main; main()")
CALLS = {
    "model bisect": (*FARM, "model", "bisect", "{model}", "--delegate", "curious", "--out", "{out}"),
    "model bench": (*FARM, "model", "bench", "{model}", "--delegate=curious", "--output_filepath={out}"),
    "submit --explain": ("-m", "agent.enclosed", "--explain", "{model}", "curious", "{{}}"),
}
"""What loads the delegate, by what the user types."""


@pytest.fixture
def curious(tmp_path, monkeypatch):
    """Install the delegate; return what it is told, and what a verb that loads it says: (code, stderr)."""
    packages, home = tmp_path / "packages", tmp_path / "home"
    info = packages / "curious-1.0.dist-info"
    info.mkdir(parents=True)
    home.mkdir()
    (tmp_path / "secret").write_text("secret")
    (packages / "curious.py").write_text(DELEGATE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: curious\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[delegate_farm.delegates]\ncurious = curious:DESCRIPTOR\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FARM_DATABASE_URL", "secret")
    told = {"secret": str(tmp_path / "secret"), "home": str(home), "out": str(tmp_path / "out")}

    def run(model: Path, verb: str = "model bisect", **more: object) -> tuple[int, str]:
        (packages / "told.json").write_text(json.dumps({**told, **more}))
        ran = subprocess.run(
            [sys.executable, "-P", *(word.format(model=model.name, **told) for word in CALLS[verb])],
            cwd=model.parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return ran.returncode, ran.stderr

    return run


@pytest.mark.parametrize("verb", ["model bench", "submit --explain"])
def test_what_runs_or_plans_a_strangers_model_besides_reaches_nothing(curious, tiny, tmp_path, verb):
    with socket.create_server(("127.0.0.1", 0)) as line:
        code, said = curious(tiny, verb, line=line.getsockname())
    found = json.loads(said[said.index("{") : said.rindex("}") + 1])
    assert code == (3 if verb == "model bench" else 1), said
    assert all(found[name].startswith("refused") for name in ("secret", "home", "line")), found
    assert found["environment"] == "none"
    assert (found["cache"] == "1") == (verb == "model bench"), "a plan keeps nothing"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [False, True])
def test_bench_reads_and_writes_the_files_that_it_is_told_to(tiny, tmp_path, monkeypatch, is_open):
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "m.tflite").write_bytes(content := tiny.read_bytes())
    words = ["--num_runs=1", "--min_secs=0", "--enable_op_profiling=true", "--export_model_runtime_info=true"]
    words += [f"--{name}={name}" for name in WRITTEN_BY_BENCH] + ["--op_profiling_output_mode=csv"]
    with (tmp_path / "m.tflite").open("rb") as file:
        graph = f"--graph=fd:{file.fileno()}:0:{len(content)}" if is_open else "m.tflite"
        ran = subprocess.run(
            [sys.executable, "-P", *FARM, "model", "bench", graph, *words],
            cwd=tmp_path, capture_output=True, check=False, pass_fds=[file.fileno()],
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    empty = {name for name in WRITTEN_BY_BENCH if not (tmp_path / name).exists()}
    assert empty == {"op_profiling_output_file"}, "this one is written in another mode"


def test_every_file_that_bench_writes_is_one_that_it_may_write():
    files = {name for name, flag in benchmark_flags().items() if "file" in name and flag.use == "used"}
    assert files - {"input_layer_value_files"} == set(WRITTEN_BY_BENCH)


@pytest.mark.parametrize("switch", ["on", slowly("off")])
def test_a_verb_reaches_its_files_and_its_caches_alone(curious, tiny, tmp_path, monkeypatch, switch):
    monkeypatch.setenv(SWITCH_VARIABLE, switch)
    with socket.create_server(("127.0.0.1", 0)) as line:
        code, said = curious(tiny, line=line.getsockname())
    found = json.loads(next((text for text in said.splitlines() if text.startswith("{")), "{}"))
    assert found, said[-900:]
    assert code == 3, said
    if switch == "on":
        assert (found["cache"], (tmp_path / "cache/kept").exists()) == ("1", True)
        assert (found["out"], found["environment"], found["leads"]) == ("1", "none", "True")
        assert [found[name] for name in ("secret", "home")] == ["refused PermissionError"] * 2
        assert found["line"].startswith("refused")
    else:
        assert (found["secret"], found["home"], found["environment"]) == ("secret", "1", "secret")


@pytest.mark.slow
def test_a_delegate_that_ends_its_process_is_one_line(curious, tiny):
    code, said = curious(tiny, line=["127.0.0.1", 9], dies=True)
    assert code == 1, said
    assert "error: the process that ran the model ended with SIGABRT" in said.splitlines()[-1], said


def test_a_setting_that_is_not_understood_is_one_line(monkeypatch, tiny):
    ran = subprocess.run(
        [sys.executable, "-P", "-c", "from orchestrator.cli import main; main()", "model", "info", str(tiny)],
        env={**os.environ, SWITCH_VARIABLE: "maybe"}, cwd=REPOSITORY, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (2, f"error: {SWITCH_VARIABLE}: 'maybe' is neither on nor off\n")
