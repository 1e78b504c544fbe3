"""`farm model prime`: what models need is compiled once and kept, and they find it when they are opened."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from runtime.api.interpreter import Interpreter
from runtime.delegates.gpu.backends.opencl import library
from runtime.delegates.gpu.backends.opencl.compilers import Compilers
from runtime.delegates.gpu.delegate import GpuDelegate
from runtime.delegates.gpu.layout import source
from runtime.delegates.gpu.start import priming
from runtime.delegates.partition import Partition
from runtime.errors import DelegateError
from runtime.model.schema import BuiltinOperator as Op
from runtime.model.skeleton import restore_skeleton
from runtime.tools.priming import networks, partitions_of, prime_device
from runtime.tools.verbs import model_verbs
from tests.runtime.models import Builder


@pytest.fixture
def model(tmp_path):
    """Write a model of three kernels to a file."""
    builder, shape = Builder(), (1, 3, 5, 17)
    x = builder.input(np.float32, shape)
    axis = builder.constant(np.array([2], np.int32))
    for op, more, options in ((Op.SOFTMAX, (), {"beta": 1.0}), (Op.CUMSUM, (axis,), {}), (Op.TANH, (), {})):
        y = builder.tensor(np.float32, shape)
        builder.operator(op, (x, *more), (y,), options)
        x = y
    path = tmp_path / "model.tflite"
    path.write_bytes(builder.write([x]))
    return path


@pytest.fixture
def compiled(monkeypatch):
    """Return the names of the kernels that compilers were asked for since the last call, in a process that
    has loaded none.
    """
    asked: list[str] = []
    original = Compilers.compile

    def noted(self, form, common, kernels, take):
        asked.extend(kernel.name for kernel in kernels if form != "trial")
        original(self, form, common, kernels, take)

    def since():
        monkeypatch.setattr(library, "_addresses", {})
        found = list(asked)
        asked.clear()
        return found

    monkeypatch.setattr(Compilers, "compile", noted)
    since()
    return since


def opened(model, folder):
    delegate = GpuDelegate({"cache_dir": str(folder), "persistent": "off", "require_full_delegation": True})
    interpreter = Interpreter(model_path=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    interpreter.close()


def test_a_model_that_was_primed_compiles_nothing_when_it_is_opened(model, tmp_path, compiled, monkeypatch):
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path))
    folder = tmp_path / "opencl"

    def primed():
        ran = CliRunner().invoke(model_verbs(), ["prime", str(model), "--json"])
        assert ran.exit_code == 0, ran.output
        found = json.loads(ran.output)
        return found["known"], found["compiled"], len(compiled())

    assert primed() == (0, 3, 3)
    opened(model, folder)
    assert compiled() == []
    assert primed() == (3, 0, 0)
    # What was cleaned away meanwhile is compiled again, and nothing else.
    next((folder / "kernels").iterdir()).unlink()
    assert primed() == (2, 1, 1)


def test_who_keeps_no_kernels_says_so(model):
    with pytest.raises(DelegateError, match=r"no kernel would be kept \(the cache is switched off\)"):
        prime_device("gpu", {"cache_dir": ""}, [model])
    with pytest.raises(DelegateError, match="litert: it keeps no compiled kernels"):
        prime_device("litert", {}, [model])
    ran = CliRunner().invoke(model_verbs(), ["prime", str(model.parent / "absent.tflite")])
    assert ran.exit_code == 2
    assert "absent.tflite" in ran.output


def test_a_network_without_its_weights_asks_for_the_same_kernels(tmp_path):
    delegate = GpuDelegate({"cache_dir": str(tmp_path)})
    (skeleton,) = (file for file in networks() if file.stem == "torchvision_squeezenet1_1")
    restored = tmp_path / "restored.tflite"
    restored.write_bytes(restore_skeleton(skeleton.read_bytes()))

    def asked(file):
        return [function.identity for part in partitions_of(delegate, [file]) for function in needed(part)]

    def needed(partition: Partition):
        return priming._needed(partition, delegate._backend, delegate.options, delegate.way)

    assert asked(skeleton) == asked(restored) != []


@pytest.mark.slow
def test_what_was_compiled_before_an_interrupt_stays(model, tmp_path, compiled, monkeypatch):
    counting = Compilers.compile

    def interrupted(self, form, common, kernels, take):
        def taken(name, code):
            take(name, code)
            raise KeyboardInterrupt

        counting(self, form, common, kernels, take if form == "trial" else taken)

    options = {"cache_dir": str(tmp_path / "cache")}
    monkeypatch.setattr(Compilers, "compile", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prime_device("gpu", options, [model])
    monkeypatch.setattr(Compilers, "compile", counting)
    compiled()
    found = prime_device("gpu", options, [model])
    assert (found.known, found.compiled) == (1, 2)
    assert len(compiled()) == 2


@pytest.mark.slow
def test_a_kernel_that_the_driver_refuses_is_told_and_asked_for_again(model, tmp_path, compiled, monkeypatch):
    plain = source.kernel_source

    def faulty(name):
        return "#error refused\n" if name.startswith("reduction/softmax") else plain(name)

    monkeypatch.setattr(priming, "_BATCH", 1)
    monkeypatch.setattr(source, "kernel_source", faulty)
    monkeypatch.setenv("FARM_CACHE_DIR", str(tmp_path))
    ran = CliRunner().invoke(model_verbs(), ["prime", str(model)])
    assert ran.exit_code == 1
    assert "2 kernels of 1 models are kept, 2 of them are new" in ran.output
    assert "refused" in ran.output
    monkeypatch.setattr(source, "kernel_source", plain)
    compiled()
    found = prime_device("gpu", {}, [model])
    assert (found.known, found.compiled, found.failures) == (2, 1, ())


@pytest.mark.slow
def test_all_networks_of_the_zoo_share_a_bounded_number_of_kernels(tmp_path):
    delegate = GpuDelegate({"cache_dir": str(tmp_path)})
    found = {
        function
        for part in partitions_of(delegate, networks())
        for function in priming._needed(part, delegate._backend, delegate.options, delegate.way)
    }
    assert 100 < len(found) < 450
