"""Delegates of other packages in a campaign file: their options are those that their descriptors declare."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.manifest import Campaign, ManifestError, delegates, load_manifest
from runtime.delegates.descriptor import DelegateDescriptor, Option
from runtime.delegates.registry import ENTRY_POINT_GROUP


def load(folder: Path, delegate: str) -> Campaign:
    path = folder / "models.yaml"
    path.write_text(
        f"version: 1\ncampaign: c\nmodels:\n  - {{id: a, source: a.tflite}}\ndelegates:\n  f: {delegate}\n"
    )
    return load_manifest(path)


def mistakes(folder: Path, delegate: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        load(folder, delegate)
    return [problem.text for problem in caught.value.problems]


def foreign_kind(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Entry points `foreign` that name `values`, beside the installed ones."""
    points = [EntryPoint("foreign", value, ENTRY_POINT_GROUP) for value in values]

    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        known = [*entry_points(group=group), *points]
        return [point for point in known if name in (None, point.name)]

    monkeypatch.setattr(delegates, "entry_points", found)
    for cached in (delegates.known_kinds, delegates.default_kinds, delegates.declared_options):
        monkeypatch.setattr(delegates, cached.__name__, cached.__wrapped__)


FOREIGN = DelegateDescriptor(
    name="foreign",
    implementation="nowhere:Nothing",
    options={
        "depth": Option(value_type=int, minimum=1, maximum=8, help="How deep."),
        "ratio": Option(value_type=float, minimum=0, help="How much."),
        "mode": Option(value_type=str, choices=("calm", "eager"), help="How."),
        "note": Option(value_type=str, help="What for."),
        "strict": Option(value_type=bool, help="How exactly."),
    },
)


def test_the_options_of_a_foreign_kind_are_read_as_its_descriptor_declares_them(tmp_path, monkeypatch):
    foreign_kind(monkeypatch, "foreign_package:DESCRIPTOR")
    monkeypatch.setitem(sys.modules, "foreign_package", SimpleNamespace(DESCRIPTOR=FOREIGN))
    line = "{kind: foreign, depth: [1, 8], ratio: 0.5, mode: eager, note: 3.10, strict: true}"
    entries = load(tmp_path, line).delegates
    assert [entry.name for entry in entries] == ["f-1", "f-8"]
    assert entries[1].options == {"depth": 8, "ratio": 0.5, "mode": "eager", "note": "3.10", "strict": True}


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("dept: 2", "unknown option 'dept' of delegate kind 'foreign'; did you mean 'depth'?"),
        (
            "threads: 2",
            "unknown option 'threads' of delegate kind 'foreign'; known: depth, mode, note, ratio,",
        ),
        ("depth: 9", "expected a whole number at least 1 at most 8, found 9"),
        ("mode: lazy", "unknown mode 'lazy'; known: calm, eager"),
        ("strict: 1", "expected true or false, found a whole number '1'"),
    ],
)
def test_an_option_that_a_foreign_kind_does_not_declare_is_refused(option, said, tmp_path, monkeypatch):
    foreign_kind(monkeypatch, "foreign_package:DESCRIPTOR")
    monkeypatch.setitem(sys.modules, "foreign_package", SimpleNamespace(DESCRIPTOR=FOREIGN))
    (mistake,) = mistakes(tmp_path, f"{{kind: foreign, {option}}}")
    assert said in mistake


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("nowhere.at_all:X",), "nowhere.at_all:X cannot be loaded: No module named 'nowhere'"),
        (("json:loads",), "json:loads cannot be loaded: 'function' object has no attribute 'options'"),
        (
            ("json:loads", "json:dumps"),
            "it is registered twice (json:dumps, json:loads); uninstall all but one",
        ),
    ],
)
def test_a_kind_whose_package_is_broken_is_a_mistake_of_the_line_that_uses_it(
    values, said, tmp_path, monkeypatch
):
    foreign_kind(monkeypatch, *values)
    assert load(tmp_path, "{kind: cpu}").delegates[0].kind == "cpu"
    (mistake,) = mistakes(tmp_path, "{kind: foreign}")
    assert f"delegate kind 'foreign' cannot be used here: {said}" in mistake


def test_a_submission_without_delegates_takes_those_of_the_farm(monkeypatch):
    foreign_kind(monkeypatch, "foreign_package:DESCRIPTOR")
    assert {"litert-gpu", "openvino", "foreign"} <= set(delegates.known_kinds())
    monkeypatch.setitem(sys.modules, "foreign_package", SimpleNamespace(DESCRIPTOR=FOREIGN))
    assert delegates.default_kinds() == ("cpu", "gpu", "litert"), "what others install adds no column"
