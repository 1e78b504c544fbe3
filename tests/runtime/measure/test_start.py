"""The parts of a start on each delegate: stages, memory, and a reason for each missing one."""

from __future__ import annotations

from runtime.common.stages import STAGES
from runtime.delegates.base import Unsupported
from runtime.measure.benchmark import measure, start_cold
from runtime.measure.loading import Opener, Subject

SHA = "cd" * 32


def test_the_cpu_path_tells_its_stages_and_says_why_it_has_no_others(small_model):
    found = measure(Subject(Opener.prepare("cpu", {}), str(small_model), SHA), warmup_runs=3, runs=3)
    assert list(found.stages_ns) == ["parse", "partition", "compile"]
    assert min(found.stages_ns.values()) > 0
    assert sum(found.stages_ns.values()) <= found.init_ns
    assert set(found.memory_bytes) == {"load", "ready", "steady"}
    assert set(found.unseen) == {"tune", "upload", "device"}
    assert found.unseen["tune"] == "cpu chooses nothing by timing"


def test_a_cold_start_has_no_steady_memory(small_model):
    found = start_cold(Subject(Opener.prepare("cpu", {}), str(small_model), SHA))
    assert set(found.memory_bytes) == {"load", "ready"}
    assert "steady" not in found.unseen


def test_the_gpu_delegate_tells_all_stages_and_what_it_holds_on_the_device(small_model):
    opener = Opener.prepare("gpu", {"tuning": "none", "persistent": "off"})
    found = measure(Subject(opener, str(small_model), SHA), warmup_runs=3, runs=3)
    assert set(found.stages_ns) == set(STAGES)
    assert sum(found.stages_ns.values()) <= found.init_ns
    assert found.unseen == {}
    # Input and output of 128 floats, and the constants.
    assert found.memory_bytes["device"] >= 2 * 512 + int(found.settings["constant_bytes"])


def test_a_delegate_that_takes_the_file_whole_has_no_zeros_but_reasons(small_model):
    found = measure(Subject(Opener.prepare("litert", {}), str(small_model), SHA), warmup_runs=3, runs=3)
    assert found.stages_ns == {}
    assert set(found.memory_bytes) == {"ready", "steady"}
    assert set(found.unseen) == {*STAGES, "load", "device"}
    assert found.unseen["parse"] == "litert opens a file in one step and tells no stages of it"
    assert found.unseen["device"] == "litert does not tell what it holds on its device"


class Foreign:
    """A partition delegate that knows nothing of stages."""

    name = "foreign"
    max_delegated_partitions = 1

    def supports(self, _graph, operator):
        return None if operator.index == 0 else Unsupported("not mine")

    def compile(self, partition):
        (gain,) = partition.constants.values()

        class Scaled:
            def invoke(self, inputs, outputs):
                outputs[0][...] = inputs[0] * gain

            def close(self):
                pass

        return Scaled()

    def describe(self):
        return {}


def test_a_partition_delegate_without_stages_shows_what_the_interpreter_knows(small_model):
    opener = Opener("foreign", {}, lambda _options: Foreign())
    found = measure(Subject(opener, str(small_model), SHA), warmup_runs=3, runs=3)
    assert set(found.stages_ns) == {"parse", "partition", "compile"}
    assert found.unseen["tune"] == found.unseen["upload"] == "foreign told no such stage"
    assert found.unseen["device"] == "foreign does not tell what it holds on its device"
