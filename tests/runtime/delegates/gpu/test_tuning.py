"""The tuner with two ways to run one node, one of which does the work forty times."""

from dataclasses import replace

import numpy as np
import pytest

from runtime.delegates.gpu.alternatives import layout_rules
from runtime.delegates.gpu.backends.opencl.backend import OpenClBackend
from runtime.delegates.gpu.backends.opencl.recording import OpenClRecording
from runtime.delegates.gpu.builder import build_graph
from runtime.delegates.gpu.choose import contention, tuning
from runtime.delegates.gpu.choose.tuning import BUDGET_S, Budget, Tuner
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.layout.source import assemble
from runtime.delegates.gpu.lowering.elementwise.elementwise import lower
from runtime.delegates.gpu.lowering.spec import Candidate, Context
from runtime.delegates.gpu.passes import optimise
from runtime.delegates.gpu.settings.choices import written
from runtime.delegates.gpu.settings.options import Options, parse_options
from runtime.errors import DelegateError, DeviceError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.schema import Padding
from tests.runtime.delegates.gpu.models import ModelBuilder, whole


@pytest.fixture
def job(tmp_path):
    """Return a device that remembers, a graph of one node, its two candidates, and their program."""
    backend = OpenClBackend.open(0, tmp_path)
    build = ModelBuilder()
    model = build.build(build.op(Op.TANH, [build.input(1, 64, 64, 64)], (1, 64, 64, 64)))
    graph = optimise(build_graph(whole(model)), layout_rules())
    (good,) = lower(graph.nodes[0], Context(graph, backend.capabilities))
    # Many more, and timing it would take longer than there is time for where others use the processor.
    slow = Candidate("slow", good.launches * 16)
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


def test_a_result_names_its_choices_and_another_start_uses_them(tmp_path, monkeypatch):
    build = ModelBuilder()
    weights = build.constant(np.ones((16, 3, 3, 16), np.float32))
    steps = {"stride_w": 1, "stride_h": 1, "padding": Padding.SAME}
    y = build.op(Op.CONV_2D, [build.input(1, 14, 14, 16), weights], (1, 14, 14, 16), **steps)
    partition = whole(build.build(y))
    first = GpuDelegate({"cache_dir": str(tmp_path)})
    compiled = first.compile(partition)
    made = first.describe()["choices"]
    monkeypatch.setattr(Tuner, "_measure", lambda *_: pytest.fail("measured again"))
    warm = GpuDelegate({"cache_dir": str(tmp_path)})
    second = warm.compile(partition)
    again = GpuDelegate({"cache_dir": str(tmp_path), "choices": made})
    third = again.compile(partition)
    assert warm.describe().get("choices", "") == again.describe().get("choices", "") == made
    del compiled, second, third


PAUSED = [1_000_000] * 3 + [90_000_000]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_disturbed_device_takes_the_rule_s_choice_and_is_timed_in_a_later_quiet_start(
    job, monkeypatch, when, tmp_path
):
    backend, graph, alternatives, source, program = job
    with monkeypatch.context() as disturbed:
        if when == "before":
            disturbed.setattr(tuning, "disturbance", lambda _: "a neighbour")
            disturbed.setattr(Tuner, "_measure", lambda *_: pytest.fail("timed"))
        else:
            disturbed.setattr(tuning, "paused_share", lambda _: contention.paused_share([PAUSED]))
        tuner = Tuner(backend, Options(tuning="fast"))
        shortlist = tuner.shortlist(alternatives)
        assert len(shortlist[0]) == (1 if when == "before" else 2)
        (stage,) = tuner.choose(graph, shortlist, source, program)
        assert stage.candidate.name == "slow"
        assert tuner.disturbance
        assert list(tuner.choices.values()) == ["slow"]
        assert not (tmp_path / "tuning").exists()
    assert chosen(job, "fast") == "good"


def test_what_the_budget_does_not_suffice_for_is_the_rule_s_choice_and_is_kept(job, monkeypatch):
    monkeypatch.setitem(tuning.BUDGET_S, "fast", 1e-6)
    assert chosen(job, "fast") == "slow"
    monkeypatch.setitem(tuning.BUDGET_S, "fast", 0.0)
    monkeypatch.setattr(Tuner, "_measure", lambda *_: pytest.fail("timed"))
    assert chosen(job, "fast") == "slow"


def test_all_partitions_of_a_delegate_share_one_budget(job):
    backend, graph, alternatives, source, program = job
    budget = Budget("fast")
    Tuner(backend, Options(), budget).choose(graph, alternatives, source, program)
    left = budget.left_s
    assert left < BUDGET_S["fast"]
    Tuner(backend, Options(), budget).choose(graph, alternatives, source, program)
    assert budget.left_s < left
    budget.left_s = 0.0
    other = Tuner(OpenClBackend.open(0, None), Options(), budget)
    assert [len(node) for node in other.shortlist(alternatives)] == [1]


def test_a_failure_meanwhile_gives_the_memory_of_all_candidates_back(job, monkeypatch):
    backend, made = job[0], []
    record = backend.record

    def fail(_):
        raise DeviceError("the driver refuses")

    monkeypatch.setattr(type(backend), "record", lambda _, *given: made.append(record(*given)) or made[-1])
    monkeypatch.setattr(OpenClRecording, "timer", fail)
    with pytest.raises(DeviceError, match="the driver refuses"):
        chosen(job, "fast")
    assert [one.is_closed for one in made] == [True]


def test_a_broken_note_is_measured_again(job, tmp_path):
    assert chosen(job, "fast") == "good"
    (note,) = (tmp_path / "tuning").iterdir()
    note.write_text("{")
    assert chosen(job, "fast") == "good"
    assert "good" in note.read_text()


def test_light_nodes_get_their_default_only(job):
    backend, _, alternatives, _, _ = job
    light = [
        replace(c, launches=tuple(replace(x, flops=1, bytes=0) for x in c.launches)) for c in alternatives[0]
    ]
    light = [replace(c, launches=tuple(replace(x, units=1) for x in c.launches)) for c in light]
    shortlist = Tuner(backend, Options(tuning="fast")).shortlist([light, alternatives[0]])
    assert [len(node) for node in shortlist] == [1, 2]
