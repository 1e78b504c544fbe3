"""Devices behind the real `adb`: a server that speaks its protocol has them, and they are this machine."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from agent.attached.hosts import OverAdb
from agent.attached.listing import sensed
from agent.attached.remote import LostError, Remote
from agent.wire.messages import JobResult
from tests import needs
from tests.agent.attached.devices import DIFF, PRINTS, Attached, labelled, script
from tests.agent.embedded_agent import EmbeddedAgent, alive, eventually, job, put_model
from tests.services.adb import AdbServer, adb_server

ENTRY = '[[attached]]\nkind = "adb"\nname = "{name}"\nserial = "{serial}"\nfolder = "{folder}"\n'
ANDROID = {
    "getprop": "case $1 in ro.product.model) echo Pixel;; *) echo google/test:15;; esac",
    "dumpsys": '[ "$1" = battery ] && printf "  level: 80\\n  temperature: 312\\n"',
}
"""What a phone has and this machine lacks."""
EVALUATIONS = {
    "inference_diff": f"echo '{DIFF}'",
    "image_classification_run_eval": "for w; do case $w in "
    "*pictures) p=${w#*=};; *truth_labels=*) l=${w#*=};; esac; done\n"
    'echo "Num evaluation runs: $(ls "$p" | wc -l)"; echo "Top-1 Accuracy: $(grep -c 1 "$l")"',
}
"""Tools of the phone; one counts the pictures that it was given, and the labels that are 1."""


@dataclass
class Phone(Attached):
    """A phone behind a server of adb."""

    server: AdbServer


@pytest.fixture(scope="module")
def phone(tmp_path_factory, probed, tiny) -> Iterator[Phone]:
    adb, folder = needs.adb(), tmp_path_factory.mktemp("phone")
    (folder / "bin").mkdir()
    for name, text in ANDROID.items():
        script(folder / "bin" / name, text)
    libraries = {"LD_LIBRARY_PATH": str(adb.parent)} if adb.parent.name == "adb.d" else {}
    device = os.environ | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in libraries.items():
            patch.setenv(name, value)
        with adb_server(adb, {"serial-1"}, device) as server:
            tool = f'benchmark_model = "{folder}/tool"\n'
            entries = (("phone", "serial-1"), ("gone", "serial-2"))
            tool += f'evaluation = "{folder}/tools"\n'
            (folder / "tools").mkdir()
            text = (ENTRY.format(name=name, serial=one, folder=folder) + tool for name, one in entries)
            (folder / "attached.toml").write_text("".join(text))
            patch.setenv("FARM_ATTACHED", str(folder / "attached.toml"))
            patch.setenv("PATH", str(adb.parent), prepend=os.pathsep)
            patch.setenv("ADB_SERVER_SOCKET", f"tcp:127.0.0.1:{server.port}")
            patch.setenv("FARM_PASS_ENVIRONMENT", "ADB_SERVER_SOCKET")
            found = Phone(folder, put_model(folder / "store", tiny), server)
            found.says(PRINTS)
            for name, says in EVALUATIONS.items():
                script(folder / "tools" / name, says)
            found.agent = EmbeddedAgent(folder, probe_command=probed)
            yield found
            found.agent.close()


@pytest.mark.slow
def test_a_phone_is_measured_by_its_own_tool_on_the_bytes_that_were_copied(phone, tiny):
    device = next(one for one in phone.agent.hello.devices if one.device_id == "phone")
    assert (device.api, device.name, device.environment["system"]) == ("adb", "Pixel", "google/test:15")
    phone.tool(f"cmp {tiny} {phone.folder}/delegate-farm-attempt/model.tflite && cat {phone.folder}/text")
    with zipfile.ZipFile(phone.folder / "data.zip", "w") as archive:
        for name, content in {"a.png": "a", "b.png": "b", "ground_truth.txt": "0\n1\n"}.items():
            archive.writestr(name, content)
    plan = labelled(phone.folder / "store", phone.folder / "data.zip")
    result = phone.agent.run(job(phone.model, device="phone", delegate_options={"threads": 1}, plan=plan))
    assert result.reason is None
    assert result.measurement is not None
    assert result.measurement.labelled is not None
    assert (result.measurement.labelled.samples, result.measurement.labelled.right) == (2, 2)
    assert result.measurement.accuracy.mean_abs == 1e-5
    assert result.measurement.energy.rise_c == 0.0, "its battery was as warm as before"
    assert result.measurement.latency_ms.p50 == pytest.approx(0.1)
    assert result.environment["board"] == "Pixel"
    assert "battery 31.2 °C" in result.facts["sensors_before"]
    assert "battery 80 %" in result.facts["sensors_before"]
    assert not (phone.folder / "delegate-farm-attempt").exists()


def test_a_phone_that_does_not_answer_is_missing_with_what_adb_says(phone):
    (gone,) = [one for one in phone.agent.hello.missing if one.kind == "adb:gone"]
    assert gone.reason == "gone (adb serial-2): error: device 'serial-2' not found"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("42\nerror: device unauthorized.\nIts keys are not set\nTry 'adb kill-server'.\n",
         "error: device unauthorized. Its keys are not set Try 'adb kill-server'."),
        ("adb: error: failed\n to get feature set: closed", "adb: error: failed to get feature set: closed"),
        ("42\nclosed\n", "closed"),
        ("", "the connection ended"),
    ],
)  # fmt: skip
def test_an_error_of_several_lines_is_told_whole_in_one(said, told, tmp_path):
    script(tmp_path / "adb", f"cat <<'END'\n{said}\nEND")
    remote = Remote(
        OverAdb(name="p", serial="1", benchmark_model="/b"), {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    with pytest.raises(LostError) as lost:
        remote.run("true")
    assert str(lost.value) == f"p (adb 1): {told}"


def test_a_host_without_adb_says_what_to_install(tmp_path):
    one = OverAdb(name="p", serial="1", benchmark_model="/b")
    with pytest.raises(LostError, match="this host has no adb: apt-get install adb"):
        sensed(Remote(one, {"PATH": str(tmp_path)}))


def test_a_phone_that_is_unplugged_in_a_block_is_lost_and_nothing_runs_on(phone):
    pid = phone.in_second_block("phone")
    phone.server.unplug("serial-1")
    result = phone.agent.expect(JobResult)
    phone.server.serials.add("serial-1")
    assert result.reason is not None
    assert (result.status, result.reason.code) == ("failed", "device_lost")
    assert "phone (adb serial-1)" in result.reason.text
    eventually(lambda: not alive(pid), "the tool runs on without its connection")
