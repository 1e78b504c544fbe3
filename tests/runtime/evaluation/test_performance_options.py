"""`benchmark_model_performance_options`: each setting in a process of its own, then a summary."""

from __future__ import annotations

import re

import numpy as np
import pytest

from runtime.evaluation import performance_options
from runtime.evaluation.flags import FlagError, parse
from runtime.evaluation.performance_options import Ended, main, performance_flags, runs_of, summary
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.models import Arg, Out, one_operator

QUICK = ("--num_runs=3", "--min_secs=0", "--warmup_min_secs=0")


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "relu.tflite"
    path.write_bytes(one_operator(Op.RELU, [Arg(np.zeros((1, 8), np.float32))], [Out(shape=(1, 8))]))
    return path


def names(*words):
    return [run.name for run in runs_of(parse(words, performance_flags()))]


def test_each_setting_runs_and_the_summary_has_its_statistics(graph, capfd, monkeypatch):
    monkeypatch.setattr(performance_options, "_THREADS", (1,))
    # The number of threads is the setting's own, whatever the command line says.
    assert main([f"--graph={graph}", "--perf_options_list=cpu", "--num_threads=3", *QUICK]) == 0
    out = capfd.readouterr().out
    body, _, tail = out.partition("===============Summary of All Runs w/ Different Performance Options")
    rows = [row for row in tail.splitlines()[1:] if row]
    assert body.count("Num threads: [1]") == 2
    assert body.count("Use xnnpack: [1]") == 1
    assert sorted(re.split(": count=", row)[0].strip() for row in rows) == [
        "cpu w/ 1 threads",
        "cpu w/ 1 threads (xnnpack)",
    ]
    assert all(row.partition(": ")[2] in body for row in rows)


def test_a_setting_that_fails_is_told_and_the_others_go_on(graph, capfd, monkeypatch):
    monkeypatch.setattr(performance_options, "_THREADS", (1,))
    wrong = "--input_layer=absent", "--input_layer_shape=1,8"
    assert main([f"--graph={graph}", "--perf_options_list=cpu", *wrong, *QUICK]) == 1
    told = capfd.readouterr()
    assert told.out.count(":  failed!") == 2
    assert "absent" in told.err


def test_the_options_are_litert_s(graph):
    every = names(f"--graph={graph}", "--random_shuffle_benchmark_runs=false")
    assert every == [
        *(f"cpu w/ {threads} threads{kind}" for threads in (1, 2, 4) for kind in ("", " (xnnpack)")),
        "gpu-default",
    ]
    assert names(f"--graph={graph}", "--perf_options_list=gpu") == ["gpu-default"]
    assert names(f"--graph={graph}", "--perf_options_list=none") == ["no performance options"]
    assert sorted(names(f"--graph={graph}")) == sorted(every)


def test_the_fastest_stands_first_and_a_failed_one_last():
    ended = [Ended("broken"), Ended("slow", "count=2", 2.0), Ended("fast", "count=1", 1.0)]
    assert list(summary(ended))[1:] == [
        f"{'fast':>26}: count=1",
        f"{'slow':>26}: count=2",
        f"{'broken':>26}:  failed!",
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    {
        "none_beside_others": (["--perf_options_list=none,cpu"], "leave the others out"),
        "absent": (["--perf_options_list=nnapi"], "nnapi is not offered"),
        "unknown": (["--perf_options_list=cpus"], "no option 'cpus'"),
        "one_file_for_all": (["--result_file_path=a.pb"], "room for one run"),
        "no_model": (["--graph="], "--graph=FILE is missing"),
    }.values(),
)
def test_a_wrong_list_is_refused(graph, words, error):
    with pytest.raises(FlagError, match=error):
        names(f"--graph={graph}", *words)


def test_an_unknown_flag_ends_with_the_nearest(capsys):
    assert main(["--perf_option_list=cpu"]) == 2
    assert "did you mean --perf_options_list?" in capsys.readouterr().err
