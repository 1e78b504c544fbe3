"""The option `version` of our delegates is fulfilled by the process: it is checked there, and taken away."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.runner.advice import explain
from agent.runner.probe.host import runtime_identity
from runtime.common import installation
from runtime.common.installation import commit_of
from runtime.delegates.descriptor import without_commit
from runtime.delegates.gpu.settings.options import settled
from runtime.delegates.registry import delegate_descriptor
from runtime.errors import DelegateError
from runtime.measure.loading import Opener
from tests.needs import REPOSITORY


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_a_process_takes_its_own_commit_and_no_other(kind, monkeypatch):
    descriptor = delegate_descriptor(kind)
    assert Opener.prepare(kind, {"version": "current"}).options == {}
    with pytest.raises(DelegateError) as refused:
        Opener.prepare(kind, {"version": "0a1b2c3"})
    assert f"{kind}: commit 0a1b2c3 was asked for, and this process runs current" in str(refused.value)
    monkeypatch.setattr("runtime.delegates.descriptor.own_commit", lambda: "0a1b2c3")
    assert without_commit(descriptor, {"version": "0a1b2c3", "threads": 1}) == {"threads": 1}


def test_others_keep_the_option_version():
    options = {"version": "2.3.0"}
    assert without_commit(delegate_descriptor("litert"), options) == options


def test_an_explanation_is_of_the_code_that_runs(small_model):
    assert explain(small_model, "cpu", '{"version": "current"}').obstacle == ""
    assert "commit 0a1b2c3 was asked for" in explain(small_model, "cpu", '{"version": "0a1b2c3"}').obstacle


def test_a_column_of_gpu_keeps_its_commit_and_reaches_it_through_opencl():
    asked = {"version": "0a1b2c3", "quantized": True}
    assert settled(asked) == {"version": "0a1b2c3", "enable_quantization": True}
    assert settled({"version": "current", "backend": "opencl"}) == {"version": "current", "backend": "opencl"}
    assert "leave out backend 'vulkan'" in settled({"version": "current", "backend": "vulkan"})


def test_a_version_names_its_commit_behind_the_plus():
    assert (commit_of("0.1.0+0a1b2c3"), commit_of("0.1.0")) == ("0a1b2c3", "")


def found_in(monkeypatch, folder):
    found = SimpleNamespace(version="0.1.0+0a1b2c3", locate_file=lambda _: folder)
    monkeypatch.setattr(installation, "distribution", lambda _: found)


def runs_from(monkeypatch, folder):
    module = folder / "delegate_farm/runtime/common/installation.py"
    monkeypatch.setattr(installation, "__file__", str(module))
    found_in(monkeypatch, folder)


def test_a_wheels_process_names_its_commit_and_its_bytes_since_one_name_may_have_several(monkeypatch):
    runs_from(monkeypatch, Path("/state/wheels", "ab" * 32))
    assert (installation.own_build(), installation.own_commit()) == ("0a1b2c3+ababababab", "0a1b2c3")
    runs_from(monkeypatch, Path("/state/wheels", "cd" * 32))
    assert (installation.own_build(), installation.own_commit()) == ("0a1b2c3+cdcdcdcdcd", "0a1b2c3")


def test_an_installed_package_has_the_hash_of_its_sources_though_its_version_names_a_commit(monkeypatch):
    found_in(monkeypatch, REPOSITORY)
    assert (installation.own_build(), installation.own_commit()) == ("", "")
    identity = runtime_identity.__wrapped__(delegate_descriptor("cpu").executes)
    assert re.fullmatch(r"0\.1\.0\+[0-9a-f]{10}", identity)


def test_a_distribution_whose_code_does_not_run_names_no_commit(monkeypatch, tmp_path):
    """A wheel is first on the path, and the process runs modules of other names from a clone."""
    found_in(monkeypatch, tmp_path / ("ab" * 32))
    assert installation.own_commit() == ""
