"""The record of kernels for GPUs: what it has is not compiled again, but for a draw: it tells wrong ones."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from benchmarks import gpu_static
from benchmarks.gpu_compilers import INTEL, TARGETS, Tools, recipe
from benchmarks.gpu_machine_code import Compiled
from benchmarks.gpu_plans import functions_of
from benchmarks.gpu_record import Record, as_json
from benchmarks.gpu_static import Checked, checked
from runtime.delegates.gpu.layout import source
from runtime.delegates.gpu.layout.source import Function

FIGURES = Compiled(40, 0, 0, 1024, 6, 0.75)


@dataclass
class Compilers:
    """Compilers that answer at once. `versions`: their digests. `asked`: kernels and targets of each run."""

    record: Path
    versions: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TARGETS, "a version"))
    asked: set[tuple[str, str]] = field(default_factory=set)

    def run(self, draw: str = "a draw") -> Checked:
        """Check with the record, and keep it."""
        self.asked.clear()
        found = checked(None, TARGETS, Record.read(self.record), "a tree", draw)
        self.record.write_text(as_json(found.rows, found.run))
        return found


@pytest.fixture(scope="module")
def functions() -> Mapping[Function, dict[str, float]]:
    return functions_of(("torchvision_squeezenet1_1",))


@pytest.fixture
def compilers(
    functions: Mapping[Function, dict[str, float]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Compilers]:
    found = Compilers(tmp_path / "record.json")

    def compiled(_: Tools, kernel: source.Kernel, targets: tuple[str, ...]) -> dict[str, Compiled]:
        assert kernel.name in kernel.whole
        found.asked.update((kernel.name, target) for target in targets)
        return dict.fromkeys(targets, FIGURES)

    monkeypatch.setattr(Tools, "found", lambda folder, targets: Tools(folder, dict.fromkeys(targets, "")))
    monkeypatch.setattr(Tools, "digest", lambda _, target: found.versions[target])
    monkeypatch.setattr(Tools, "compile", compiled)
    monkeypatch.setattr(gpu_static, "functions_of", lambda _: functions)
    return found


def pairs(found: Checked) -> set[tuple[str, str]]:
    """Return the kernels and targets that have figures."""
    return {(row.name, target) for row in found.rows for target in row.targets}


def test_a_kernel_that_the_record_has_is_compiled_again_only_where_it_is_drawn(compilers: Compilers) -> None:
    first = compilers.run()
    assert compilers.asked == pairs(first)
    second = compilers.run()
    assert pairs(second) == pairs(first)
    drawn = set(compilers.asked)
    assert len(drawn) == second.drawn < len(pairs(first)) / 2
    families = {row.name: row.family for row in first.rows}
    assert {families[name] for name, _ in drawn} == set(families.values())
    assert {target for _, target in drawn} == set(TARGETS)
    for row in second.rows:
        for target, run in row.runs.items():
            assert run == (second.run if (row.name, target) in drawn else first.run)
    compilers.run()
    assert compilers.asked == drawn
    compilers.run("another draw")
    assert compilers.asked != drawn


def test_a_changed_text_is_compiled_again_though_its_kernel_has_the_same_name(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, text_of = compilers.run(), source.kernel_source

    def changed(file: str) -> str:
        return text_of(file) + ("// more\n" if file == "portable.cl" else "")

    monkeypatch.setattr(source, "kernel_source", changed)
    second = compilers.run()
    assert pairs(second) == pairs(first)
    assert compilers.asked == pairs(first)
    assert second.drawn == 0


def test_another_version_of_a_compiler_compiles_all_kernels_for_its_targets(compilers: Compilers) -> None:
    first = compilers.run()
    compilers.versions |= dict.fromkeys(INTEL, "another version")
    second = compilers.run()
    intel = {(name, target) for name, target in pairs(first) if target in INTEL}
    assert compilers.asked >= intel
    assert len(compilers.asked - intel) == second.drawn
    assert recipe().count("-cl-std=CL1.2") == 2
    assert "NumVgprs" in recipe()


@pytest.mark.parametrize("without", ["digest", "compilers"])
def test_what_tells_no_digests_is_not_believed(compilers: Compilers, without: str) -> None:
    first, content = compilers.run(), json.loads(compilers.record.read_text())
    for line in content["kernels"]:
        line.pop("digest" if without == "digest" else "", None)
    for run in content["runs"]:
        run["compilers"] = {} if without == "compilers" else run["compilers"]
    compilers.record.write_text(json.dumps(content))
    assert compilers.run().drawn == 0
    assert compilers.asked == pairs(first)


def command(record: Record, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return the command with a record in the place of the committed one."""
    monkeypatch.setattr(Record, "read", lambda: record)

    def run(*options: str) -> int:
        monkeypatch.setattr(sys, "argv", ["gpu_static", *options])
        return gpu_static.main()

    return run


def test_a_forged_figure_is_noticed_when_it_is_drawn(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compilers.run()
    compilers.run()
    name, target = min(compilers.asked)
    content = json.loads(compilers.record.read_text())
    (line,) = (line for line in content["kernels"] if line["name"] == name)
    line["targets"][target][1] -= 8
    forged = json.dumps(content)
    compilers.record.write_text(forged)
    run = command(Record.read(compilers.record), monkeypatch)
    assert run("--draw", "a draw", "--out", str(compilers.record)) == 1
    said, report = capsys.readouterr().err, compilers.record.with_suffix(".md").read_text()
    wrong = f"{name} on {target}: the record has Compiled(registers=32, "
    assert wrong in said
    assert wrong in report
    assert "exit status 1" in report
    assert "make check-gpu-static-all" in said
    assert compilers.record.read_text() == forged
    assert run("--all", "--out", str(compilers.record)) == 0
    assert compilers.record.read_text() != forged


def test_a_fault_that_the_record_has_fails_though_nothing_is_compiled(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compilers.run()
    compilers.run()
    first = compilers.run().rows[0]
    name, target = next(
        (first.name, one) for one in first.targets if (first.name, one) not in compilers.asked
    )
    content = json.loads(compilers.record.read_text())
    (line,) = (line for line in content["kernels"] if line["name"] == name)
    line["targets"][target][2] = 16
    compilers.record.write_text(json.dumps(content))
    run = command(Record.read(compilers.record), monkeypatch)
    assert run("--draw", "a draw") == 1
    told = capsys.readouterr()
    assert f"{name} on {target}: 16 bytes of stack" in told.err
    assert "drawn from the record by `a draw`" in told.out
