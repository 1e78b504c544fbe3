"""Devices behind ssh: a real `sshd` on this machine, with this project's `benchmark_model` as their tool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from agent.attached.hosts import OverSsh, attached_devices
from agent.attached.listing import described
from agent.attached.remote import _OPTIONS, Answer, RefusedError, Remote
from agent.config import AgentConfig
from agent.wire.messages import CancelJob, Heartbeat, JobResult
from agent.wire.plan import InputSpec
from tests.agent.attached.devices import BLOCKS, DEVICE, PRINTS
from tests.agent.embedded_agent import BRIEF, alive, eventually, job

ENTRIES = {
    "board": {},
    "toolless": {"benchmark_model": "no tool"},
    "real": {"benchmark_model": "benchmark_model", "version": "2.3.0"},
    "away": {"host": "nobody@board"},
}
"""Devices with a tool that a test writes, with none, with this project's, and one that lets nobody in."""

ENTRY = '[[attached]]\nkind = "ssh"\nname = "{name}"\nhost = "board"\nssh_config = "{config}"\n'


@pytest.mark.slow
def test_a_device_behind_ssh_is_measured_by_its_own_tool(board):
    device = next(device for device in board.agent.hello.devices if device.device_id == "real")
    assert (device.api, device.delegates) == ("ssh", ("litert", "litert-gpu"))
    assert re.fullmatch(r"ssh-board-[0-9a-f]{12}", device.exclusion_group)
    assert device.environment["system"]
    assert re.fullmatch(r"2\.3\.0 \([0-9a-f]{12}\)", device.environment["benchmark_model"])
    inputs = {"image": InputSpec(shape=(1, 4, 4, 16))}
    result = board.agent.run(job(board.model, device="real", delegate_options={"threads": 1}, inputs=inputs))
    assert result.reason is None
    m = result.measurement
    assert m is not None
    assert m.latency_ms.p50 is not None
    assert m.latency_ms.p50 > 0.0
    assert m.latency_ms.p90 is None
    assert "no single times" in m.latency_ms.missing["p90"]
    assert m.samples >= BRIEF.rounds * BRIEF.slice_runs
    assert (m.accuracy.verdict, m.ratio) == (None, None)
    assert m.quality is not None
    assert m.quality.doubts
    assert m.settings["tool"] == "benchmark_model"
    assert m.settings["tool_version"] == device.environment["benchmark_model"]
    assert "--num_threads=1 --use_xnnpack=true" in m.settings["flags"]
    assert "--input_layer=image --input_layer_shape=1,4,4,16" in m.settings["flags"]
    assert result.environment == device.environment
    assert "no capabilities" not in result.facts["sandbox"]
    assert board.left == []


def test_devices_that_do_not_answer_or_have_no_tool_are_missing_with_the_reason(board):
    reasons = {one.kind: one.reason for one in board.agent.hello.missing}
    assert "no tool is not there" in reasons["ssh:toolless"]
    assert "Permission denied" in reasons["ssh:away"]


def test_arms_take_turns_on_the_device_and_have_a_paired_ratio(board):
    text = board.folder / "text"
    board.says(PRINTS)
    board.tool(f"case $* in *use_xnnpack=true*) sed 's/=100 /=50 /' {text};; *) cat {text};; esac")
    results = board.arms("board", BLOCKS)
    ours, theirs = results["arm"].measurement, results["base"].measurement
    assert ours is not None
    assert theirs is not None
    assert (ours.latency_ms.p50, theirs.latency_ms.p50) == pytest.approx((0.05, 0.1))
    assert theirs.ratio is None
    assert ours.ratio is not None
    assert (ours.ratio.median, ours.ratio.blocks) == (pytest.approx(2.0), 2)


@pytest.mark.slow
def test_a_ratio_is_over_a_baseline_that_has_not_failed_in_a_later_block(board):
    board.says(PRINTS)
    fails = f"c={board.folder}/blocks; echo >>$c; [ $(wc -l <$c) -lt 3 ] || exit 1"
    board.tool(f"case $* in *use_xnnpack=false*) {fails};; esac; cat {board.folder}/text")
    results = board.arms("board", BRIEF.model_copy(update={"min_blocks": 3, "max_blocks": 3}))
    assert results["base"].status == "failed"
    ours = results["arm"].measurement
    assert ours is not None
    assert (len(ours.blocks), ours.ratio) == (3, None)


def test_entries_of_one_host_are_measured_by_their_own_tools_in_one_attempt(board):
    (board.folder / "tool").unlink()
    results = board.arms("real", BRIEF)
    base, ours = results["base"], results["arm"]
    assert base.reason is not None
    assert (base.status, base.reason.code) == ("unsupported", "delegate_missing")
    assert ours.measurement is not None
    assert ours.measurement.settings["tool_version"].startswith("2.3.0 (")
    assert ours.environment["benchmark_model"] == ours.measurement.settings["tool_version"]


def test_blocks_stand_although_the_sensors_cannot_be_read_behind_them(board):
    board.says(PRINTS)
    known = board.server.config.parent / "known"
    board.tool(f"mv {known} {known}.off; cat {board.folder}/text")
    result = board.agent.run(job(board.model, device="board"))
    known.with_suffix(".off").rename(known)
    assert result.reason is None
    assert "sensors_before" in result.facts
    assert "sensors_after" not in result.facts


def test_a_tool_that_outlived_its_attempt_ends_before_the_next_one(board):
    board.says(PRINTS)
    graph = f"--graph={board.folder}/on board/delegate-farm-attempt/model.tflite"
    ours, others = (
        subprocess.Popen(["sh", "-c", "read line", "tool", word], stdin=subprocess.PIPE)
        for word in (graph, f"{graph}2")
    )
    with ours, others:
        assert board.agent.run(job(board.model, device="board")).reason is None
        ended = ours.poll(), others.poll()
        ours.kill()
        others.kill()
    assert ended == (-9, None)


@pytest.mark.parametrize("lacks", ["machine=", "cpus="])
def test_a_device_that_says_nothing_of_itself_is_refused(lacks):
    class Said(Remote):
        def run(self, script, given=None, within_s=None):
            said = ["machine=x", "cpus=4", "tool=0"]
            return Answer(0, "\n".join(line for line in said if not line.startswith(lacks)))

    one = OverSsh(name="board", host="u@" + 200 * "b", benchmark_model="/tool")
    with pytest.raises(RefusedError, match="does not describe itself"):
        described(Said(one))
    lacks = "nothing"
    groups = {
        described(Said(one.model_copy(update={"ssh_config": file}))).exclusion_group
        for file in (None, "/a", "/b")
    }
    assert len(groups) == 3


def test_no_key_and_no_network_of_the_agents_reaches_a_device(tmp_path):
    (tmp_path / "config").write_text("ForwardAgent yes\nForwardX11 yes\nTunnel yes\n")
    ssh = shutil.which("ssh") or pytest.skip("no ssh")
    options = [word for option in _OPTIONS for word in ("-o", option)]
    command = [ssh, "-G", "-F", str(tmp_path / "config"), *options, "board"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert {"forwardagent no", "forwardx11 no", "tunnel false"} <= set(said)


def test_a_device_that_is_unplugged_in_a_block_is_lost_and_nothing_runs_on(board):
    pid = board.in_second_block("board")
    board.server.unplug()
    result = board.agent.expect(JobResult)
    assert result.reason is not None
    assert (result.status, result.reason.code) == ("failed", "device_lost")
    assert "board (ssh board)" in result.reason.text
    eventually(lambda: not alive(pid), "the tool runs on without its connection")


def test_a_cancelled_attempt_ends_its_tool_and_keeps_its_block(board):
    pid = board.in_second_block("board")
    board.agent.send(CancelJob(attempt_id=board.agent.expect(Heartbeat).attempt_id))
    result = board.agent.expect(JobResult)
    assert result.measurement is not None
    assert result.measurement.quality is not None
    assert (result.measurement.quality.stopped, len(result.measurement.blocks)) == ("cancelled", 1)
    eventually(lambda: not alive(pid), "the tool runs on although nobody waits for it")
    assert board.left == []


@pytest.mark.slow
def test_a_device_rests_until_it_is_about_as_cool_as_at_first(board):
    server = board.server
    server.sense("power_supply", "battery", capacity="80", status="Discharging")
    server.sense("thermal", "thermal_zone0", type="soc", temp="41000")
    board.says(PRINTS)
    hot = server.config.parent / "thermal" / "thermal_zone0" / "temp"
    board.tool(f"echo 60000 >{hot}; cat {board.folder}/text")
    board.agent.send(job(board.model, device="board", plan=BLOCKS))
    board.agent.expect(Heartbeat, lambda beat: "cools down from 60 °C" in beat.phase)
    server.sense("thermal", "thermal_zone0", temp="45000")
    result = board.agent.expect(JobResult)
    server.sense("thermal", "thermal_zone0", temp="broken")
    assert result.facts["sensors_before"] == "soc 41 °C, battery 80 % Discharging"
    assert result.facts["sensors_after"] == "soc 60 °C, battery 80 % Discharging"
    assert result.measurement is not None
    assert len(result.measurement.blocks) == 2


def test_an_attached_device_is_known_by_its_name_in_the_lab(tmp_path):
    one = OverSsh(name="board", host="board", benchmark_model="/tool")
    paths = dict.fromkeys(("state", "store", "leases"), tmp_path)
    config = AgentConfig(agent_id="lab1", device_prefix="lab1.", attached=(one,), **paths)
    named = config.named(DEVICE)
    assert named.device_id == "lab1.board"
    assert config.attached_as(named) == one
    assert config.attached_as(named.model_copy(update={"api": "host"})) is None


def test_a_tool_that_prints_something_else_or_goes_away_ends_its_own_cell_alone(board):
    board.says("Segmentation fault")
    result = board.agent.run(job(board.model, device="board"))
    assert result.reason is not None
    assert (result.status, result.reason.code) == ("failed", "runner_error")
    assert "is none of benchmark_model's results" in result.reason.text
    (board.folder / "tool").unlink()
    result = board.agent.run(job(board.model, device="board"))
    assert result.reason is not None
    assert (result.status, result.reason.code) == ("unsupported", "delegate_missing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("attached = 3", "attached"),
        ('[[attached]]\nkind = "usb"\nname = "p"\nserial = "1"', "attached.0: Input tag 'usb'"),
        ('[[attached]]\nkind = "adb"\nname = "p"\nserial = "-e"\nbenchmark_model = "/b"',
         "attached.0.adb.serial"),
        (ENTRY.format(name="a b", config="/c") + 'benchmark_model = "/b"', "attached.0.ssh.name"),
        (ENTRY.format(name="a", config="/c").replace("board", "-oProxyCommand=x") + 'benchmark_model = "/b"',
         "attached.0.ssh.host"),
        ((ENTRY.format(name="a", config="/c") + 'benchmark_model = "/b"\n') * 2, "names a twice"),
        ("[[attached", "cannot be read"),
    ],
)  # fmt: skip
def test_a_list_with_a_mistake_names_file_and_key(tmp_path, text, says):
    file = tmp_path / "attached.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match="FARM_ATTACHED") as caught:
        attached_devices({"FARM_ATTACHED": str(file)})
    assert str(file) in str(caught.value)
    assert says in str(caught.value)
    assert attached_devices({}) == ()
    with pytest.raises(ValueError, match="absolute path"):
        attached_devices({"FARM_ATTACHED": json.dumps(text)})
