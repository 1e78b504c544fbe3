"""The tuner with two ways to run one node, one of which does the work forty times."""

from dataclasses import replace

import pytest

from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.compiled import layout_rules
from runtime.delegates.gpu.contention import Contention
from runtime.delegates.gpu.lowering.elementwise.elementwise import lower
from runtime.delegates.gpu.lowering.spec import Candidate, Context
from runtime.delegates.gpu.options import Options
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.source import assemble
from runtime.delegates.gpu.tuning import Tuner
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.models import ModelBuilder, whole


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """The machine that runs the tests may be busy; what a busy one changes has tests of its own."""
    monkeypatch.setattr(Contention, "is_disturbed", lambda _: False)


@pytest.fixture
def job(tmp_path):
    """A device that remembers, a graph of one node, its two candidates, and their program."""
    backend = OpenClBackend.open(0, tmp_path)
    build = ModelBuilder()
    model = build.build(build.op(Op.TANH, [build.input(1, 64, 64, 64)], (1, 64, 64, 64)))
    graph = optimise(build_graph(whole(model)), layout_rules())
    (good,) = lower(graph.nodes[0], Context(graph, backend.capabilities))
    slow = Candidate("slow", good.launches * 40)
    source = assemble(good.launches, backend.capabilities)
    program = backend.compile(source)
    return backend, graph, [[slow, replace(good, name="good")]], source, program


def chosen(job, level):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning=level))
    stages = tuner.choose(graph, tuner.shortlist(alternatives), source, program)
    return stages[0].candidate.name


def test_the_measured_winner_is_taken_and_remembered(job, monkeypatch):
    assert chosen(job, "fast") == "good"
    monkeypatch.setattr(Tuner, "_measure", lambda *_: pytest.fail("measured again"))
    assert chosen(job, "fast") == "good"


def test_without_tuning_the_first_candidate_is_taken_and_nothing_is_written(job, tmp_path):
    assert chosen(job, "none") == "slow"
    assert list(tmp_path.iterdir()) == []


def test_a_broken_note_is_measured_again(job, tmp_path):
    assert chosen(job, "fast") == "good"
    (note,) = (tmp_path / "tuning").iterdir()
    note.write_text("{")
    assert chosen(job, "fast") == "good"
    assert "good" in note.read_text()


def test_a_winner_found_while_other_programs_had_the_cores_is_measured_again(job, tmp_path, monkeypatch):
    monkeypatch.setattr(Contention, "is_disturbed", lambda _: True)
    assert chosen(job, "fast") == "good"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("disturbed", [False, True])
def test_a_schedule_chosen_while_other_programs_had_the_cores_is_not_remembered(
    job, tmp_path, monkeypatch, disturbed
):
    monkeypatch.setattr(Contention, "is_disturbed", lambda _: disturbed)
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning="none"))
    recording = backend.record(graph, tuner.choose(graph, alternatives, source, program), source, program)
    tuner.schedule(recording, source)
    assert len(list((tmp_path / "tuning").glob("*"))) == (0 if disturbed else 1)


def test_light_nodes_get_their_default_only(job):
    backend, _, alternatives, _, _ = job
    light = [
        replace(c, launches=tuple(replace(x, flops=1, bytes=0) for x in c.launches)) for c in alternatives[0]
    ]
    light = [replace(c, launches=tuple(replace(x, units=1) for x in c.launches)) for c in light]
    shortlist = Tuner(backend, Options(tuning="fast")).shortlist([light, alternatives[0]])
    assert [len(node) for node in shortlist] == [1, 2]


@pytest.mark.parametrize("machine", ["aarch64", "ppc64le", ""])
def test_segments_are_persistent_only_on_processors_on_which_that_was_tried(job, machine, monkeypatch):
    """Their barrier needs the groups' stores in order, which other processors give only behind fences."""
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(persistent="on", tuning="none"))
    recording = backend.record(graph, tuner.choose(graph, alternatives, source, program), source, program)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert len(tuner.schedule(recording, source).next()) == 40


@pytest.mark.parametrize(("persistent", "entries"), [("off", 40), ("on", 1)])
def test_the_option_decides_the_schedule(job, persistent, entries):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(persistent=persistent, tuning="none"))
    recording = backend.record(graph, tuner.choose(graph, alternatives, source, program), source, program)
    assert len(tuner.schedule(recording, source).next()) == entries
