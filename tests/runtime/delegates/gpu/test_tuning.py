"""The tuner with two ways to run one node, one of which does the work forty times."""

import platform
from dataclasses import replace

import numpy as np
import pytest

from runtime.delegates.gpu import tuning
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.choices import written
from runtime.delegates.gpu.compiled import layout_rules
from runtime.delegates.gpu.contention import Contention
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.lowering.elementwise.elementwise import lower
from runtime.delegates.gpu.lowering.spec import Candidate, Context
from runtime.delegates.gpu.memory import Stage
from runtime.delegates.gpu.options import Options, parse_options
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.source import assemble
from runtime.delegates.gpu.tuning import Tuner
from runtime.errors import DelegateError
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


def test_given_choices_are_used_again_and_nothing_is_timed(job, monkeypatch):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning="fast"))
    tuner.choose(graph, tuner.shortlist(alternatives), source, program)
    made = written(tuner.choices)
    assert made.endswith("=good")
    monkeypatch.setattr(Tuner, "_measure", lambda *_: pytest.fail("measured again"))
    for text, name in ((made, "good"), (made.replace("=good", "=slow"), "slow")):
        again = Tuner(backend, Options(tuning="fast", choices=text))
        stages = again.choose(graph, again.shortlist(alternatives), source, program)
        assert [stage.candidate.name for stage in stages] == [name]
        assert written(again.choices) == text


@pytest.mark.parametrize(("name", "said"), [("none", "is called 'none'"), ("", "has none for")])
def test_choices_that_do_not_decide_a_comparison_are_refused(job, name, said):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning="fast"))
    tuner.choose(graph, tuner.shortlist(alternatives), source, program)
    other = written(dict.fromkeys(tuner.choices, name)) if name else "0123456789ab=good"
    with pytest.raises(DelegateError, match=f"option 'choices'.*{said}"):
        Tuner(backend, Options(tuning="fast", choices=other)).shortlist(alternatives)


def test_choices_of_another_form_are_refused_before_a_device_is_opened():
    with pytest.raises(DelegateError, match="'good' is not KEY=NAME"):
        parse_options({"choices": "0123456789ab=good good"})


def test_a_winner_found_on_a_busy_machine_is_among_the_choices(job, monkeypatch):
    monkeypatch.setattr(Contention, "is_disturbed", lambda _: True)
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning="fast"))
    tuner.choose(graph, tuner.shortlist(alternatives), source, program)
    assert list(tuner.choices.values()) == ["good"], "a warm start of the same tuning uses it, too"


def test_a_result_names_its_choices_and_another_start_uses_them(tmp_path, monkeypatch):
    build = ModelBuilder()
    x = build.input(1, 20, 20, 16)
    y = build.op(
        Op.TANH,
        [build.op(Op.TRANSPOSE, [x, build.constant(np.int32([0, 2, 1, 3]))], (1, 20, 20, 16))],
        (1, 20, 20, 16),
    )
    partition = whole(build.build(y))
    # The plain schedule would have to win a second time.
    monkeypatch.setattr(Tuner, "_fastest", lambda *_: "16")
    first = GpuDelegate({"cache_dir": str(tmp_path)})
    compiled = first.compile(partition)
    made = first.describe().get("choices", "")
    if first._backend.capabilities.shares_one_kernel and platform.machine() == "x86_64":
        assert made, "the schedule was timed"
    monkeypatch.setattr(Tuner, "_measure", lambda *_: pytest.fail("measured again"))
    monkeypatch.setattr(Tuner, "_fastest", lambda *_: pytest.fail("measured again"))
    warm = GpuDelegate({"cache_dir": str(tmp_path)})
    second = warm.compile(partition)
    again = GpuDelegate({"cache_dir": str(tmp_path), "choices": made})
    third = again.compile(partition)
    assert warm.describe().get("choices", "") == again.describe().get("choices", "") == made
    del compiled, second, third


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
    tuner.schedule(recording)
    assert len(list((tmp_path / "tuning").glob("*"))) == (0 if disturbed else 1)


@pytest.mark.parametrize(
    ("found", "timed"),
    [
        (["16"], 1),
        (["100000"], 1),
        (["0", "0"], 2),
        (["0", "16"], 2),
        (["0", "16 while others had the cores", "0"], 3),
    ],
)
def test_a_plain_schedule_is_kept_once_two_starts_have_found_it(job, monkeypatch, found, timed):
    backend, graph, alternatives, source, program = job
    recording = backend.record(graph, [Stage(0, alternatives[0][0])], source, program)
    names, measured = [name.split()[0] for name in found], []

    def fastest(self, recording, schedules, least_seconds=0.0):
        if not least_seconds:
            measured.append(sorted(schedules))
        return names[len(measured) - 1]

    monkeypatch.setattr(Tuner, "_fastest", fastest)
    monkeypatch.setattr(Contention, "is_disturbed", lambda _: "others" in found[len(measured) - 1])
    for _ in range(timed + 2):
        tuner = Tuner(backend, Options(tuning="none"))
        chosen = tuner.schedule(recording)
        now = names[len(measured) - 1]
        assert list(tuner.choices.values()) == [now], "this start uses what it found, kept or not"
        assert len(chosen.preferred) == {"0": 40, "16": 3, "100000": 1}[now]
    assert measured == [["0", "100000", "16"]] * timed


def test_a_given_plain_schedule_is_used_without_being_timed(job, monkeypatch):
    backend, graph, alternatives, source, program = job
    recording = backend.record(graph, [Stage(0, alternatives[0][0])], source, program)
    monkeypatch.setattr(Tuner, "_fastest", lambda *_: "0")
    tuner = Tuner(backend, Options(tuning="none"))
    tuner.schedule(recording)
    monkeypatch.setattr(Tuner, "_fastest", lambda *_: pytest.fail("measured again"))
    again = Tuner(backend, Options(tuning="none", choices=written(tuner.choices)))
    assert len(again.schedule(recording).preferred) == 40
    assert again.choices == tuner.choices


def test_segments_that_are_starved_are_run_twice_only(job, monkeypatch):
    backend, graph, alternatives, source, program = job
    recording = backend.record(graph, [Stage(0, alternatives[0][0])], source, program)
    now, counts = 0.0, {}

    # The warm-up and a round, each of which may take seconds where another program has the second core.
    def run(self, entries):
        nonlocal now
        counts[len(entries)] = counts.get(len(entries), 0) + 1
        now += {40: 0.001, 3: 0.1, 1: 0.0005}[len(entries)]

    monkeypatch.setattr(tuning, "perf_counter", lambda: now)
    monkeypatch.setattr(type(recording), "run", run)
    assert len(Tuner(backend, Options(tuning="none")).schedule(recording).preferred) == 1
    assert counts[3] == 2
    assert min(counts[40], counts[1]) >= 4


def test_a_disturbance_of_a_moment_does_not_choose_the_plain_schedule(job, monkeypatch):
    """For 30 ms, which outlast all rounds of a small model, what shares the host delays spinning segments."""
    backend, graph, alternatives, source, program = job
    recording = backend.record(graph, [Stage(0, alternatives[0][0])], source, program)
    now = 0.0

    def run(self, entries):
        nonlocal now
        now += 0.0012 if len(entries) == 40 else 0.002 if now < 0.03 else 0.001

    monkeypatch.setattr(tuning, "perf_counter", lambda: now)
    monkeypatch.setattr(type(recording), "run", run)
    monkeypatch.setattr(Contention, "is_disturbed", lambda _: False)
    assert len(Tuner(backend, Options(tuning="none")).schedule(recording).preferred) in (1, 3)
    assert now < 0.5


def test_a_schedule_that_cannot_win_is_run_a_few_times_only(job, monkeypatch):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning="none"))
    recording = backend.record(graph, tuner.choose(graph, alternatives, source, program), source, program)
    counts: dict[int, int] = {}
    now = 0.0

    # What a busy machine makes of spinning threads is another matter: nothing runs, one schedule takes time.
    def run(self, entries):
        nonlocal now
        counts[len(entries)] = counts.get(len(entries), 0) + 1
        now += 0.2 if len(entries) == len(self.launches) else 0.001

    monkeypatch.setattr(tuning, "perf_counter", lambda: now)
    monkeypatch.setattr(type(recording), "run", run)
    chosen = tuner.schedule(recording)
    assert counts.pop(len(recording.launches)) == 4
    assert len(chosen.next()) in counts


def test_schedules_that_become_slower_than_one_that_was_dropped_are_compared_to_the_end(job, monkeypatch):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(tuning="none"))
    recording = backend.record(graph, tuner.choose(graph, alternatives, source, program), source, program)
    runs: list[int] = []
    now = 0.0

    # Three warm-up runs, then rounds of three: segments are fast in the first round alone.
    def run(self, entries):
        nonlocal now
        runs.append(len(entries))
        is_plain = len(entries) == len(self.launches)
        now += 0.005 if is_plain else 0.001 if len(runs) <= 6 else 0.02

    monkeypatch.setattr(tuning, "perf_counter", lambda: now)
    monkeypatch.setattr(type(recording), "run", run)
    monkeypatch.setattr(type(backend.cache), "read", lambda *_: None)
    assert tuner.schedule(recording).next()
    assert len(runs) > 12


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
    assert len(tuner.schedule(recording).next()) == 40


@pytest.mark.parametrize(("persistent", "entries"), [("off", 40), ("on", 1)])
def test_the_option_decides_the_schedule(job, persistent, entries):
    backend, graph, alternatives, source, program = job
    tuner = Tuner(backend, Options(persistent=persistent, tuning="none"))
    recording = backend.record(graph, tuner.choose(graph, alternatives, source, program), source, program)
    assert len(tuner.schedule(recording).next()) == entries
