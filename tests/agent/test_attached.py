"""Devices behind ssh: a real `sshd` on this machine, with this project's `benchmark_model` as their tool."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from agent.attached.hosts import OverSsh, attached_devices
from agent.attached.listing import EVALUATION, described
from agent.attached.remote import _OPTIONS, Answer, RefusedError, Remote
from agent.attempt.files import AttemptFile, mark_cancelled
from agent.config import AgentConfig
from agent.runner.attached.arm import ToolArm
from agent.runner.attached.evaluation import data_flags, packed, score_of, tool_of
from agent.runner.attached.figures import why_not_counted
from agent.runner.attached.flags import tool_call
from agent.runner.turns.ending import CancelledError
from agent.wire.messages import CancelJob, Device, Heartbeat, JobResult, JobStarted
from agent.wire.plan import InputData, InputSpec, LabelledData, MeasurePlan
from runtime.common.benchmark_log import LogError, read_log
from runtime.common.evaluation_log import CLASSIFICATION, DETECTION, INFERENCE_DIFF
from runtime.errors import NoDeviceError
from runtime.measure.accuracy.ground_truth import read_text_proto
from runtime.measure.accuracy.intervals import share_interval
from tests.agent.embedded_agent import BRIEF, EmbeddedAgent, alive, eventually, job, put_model
from tests.runtime.evaluation.test_run_eval import CLASSES, classifier
from tests.services.sshd import Sshd, sshd, tool_of_this_project

DEVICE = Device(
    device_id="board", kind="cpu", api="ssh", name="", delegates=(), exclusion_group="x", environment={}
)

ENTRY = '[[attached]]\nkind = "ssh"\nname = "{name}"\nhost = "board"\nssh_config = "{config}"\n'

PRINTS = """\
Loaded model m.tflite
count=50 first=9 curr=9 min=9 max=900 avg=100.5 std=3 p5=9 median=100 p95=110
Inference timings in us: Init: 1000, First inference: 300, Warmup (avg): 120, Inference (avg): 100.5
"""
PARTIAL = (
    "Explicitly applied GPU delegate, and the model graph will be partially executed by the delegate w/ 2 "
    "delegate kernels.\n"
)
DIFF = "Num evaluation runs: 4\nOutputDiff[0]: avg_error=1e-05, std_dev=1e-06"
BLOCKS = BRIEF.model_copy(update={"min_blocks": 2, "max_blocks": 2})


def script(path: Path, text: str) -> None:
    """Write a program of the shell, whole at once."""
    path.with_suffix(".part").write_text(f"#!/bin/sh\n{text}\n")
    path.with_suffix(".part").chmod(0o755)
    path.with_suffix(".part").replace(path)


@dataclass
class Board:
    """An agent with the devices `real`, of this project's tool, and `board`, of one that a test writes."""

    agent: EmbeddedAgent
    server: Sshd
    folder: Path
    model: tuple[str, int]

    def tool(self, text: str) -> None:
        """Make a script the device's tool."""
        script(self.folder / "tool", text)

    def says(self, text: str) -> None:
        """Have the tool print a text, whatever it is asked for."""
        (self.folder / "text").write_text(text)
        self.tool(f"cat {self.folder}/text")

    def arms(self, device: str, plan: object, base: str = "board") -> dict[str, JobResult]:
        """Measure a baseline with the built-in kernels, and XNNPACK's on a device, by turns."""
        base = job(self.model, delegate="builtin", device=base, delegate_kind="litert",
                   delegate_options={"resolver": "builtin"}, plan=plan)  # fmt: skip
        arm = {name: getattr(base, name) for name in ("attempt_no", "epoch", "delegate_kind")}
        arm |= {"attempt_id": uuid.uuid4().hex, "cell_id": "other", "delegate": "litert", "device_id": device}
        both = base.model_dump() | {"arms": [arm], "baseline": base.attempt_id}
        self.agent.send(type(base).model_validate(both))
        results = {r.attempt_id: r for r in (self.agent.expect(JobResult), self.agent.expect(JobResult))}
        return {"base": results[base.attempt_id], "arm": results[arm["attempt_id"]]}

    @property
    def left(self) -> list[str]:
        return [path.name for path in (self.folder / "on board").iterdir()]

    def in_second_block(self) -> int:
        """Start an attempt; return the id of its second run of the tool, which goes on for ever."""
        one, two = (self.folder / f"{name}-{uuid.uuid4().hex}" for name in ("one", "two"))
        (self.folder / "text").write_text(PRINTS)
        goes_on = f"echo $$ >{two}.part; mv {two}.part {two}; exec sleep 600"
        self.tool(f"[ -e {one} ] && {{ {goes_on}; }}\n: >{one}; cat {self.folder}/text")
        self.agent.send(job(self.model, device="board", plan=BLOCKS))
        self.agent.expect(JobStarted)
        eventually(two.exists, "the second block does not begin")
        return int(two.read_text())


@pytest.fixture(scope="module")
def board(tmp_path_factory, probed, tiny) -> Iterator[Board]:
    folder = tmp_path_factory.mktemp("board")
    with sshd(tmp_path_factory.mktemp("sshd")) as server, pytest.MonkeyPatch.context() as patch:
        (folder / "on board").mkdir()
        place = f'folder = "{folder}/on board"\ndelegates = ["litert", "litert-gpu"]\n'
        entries = [
            f'{ENTRY.format(name=name, config=server.config)}benchmark_model = "{folder}/{tool}"\n{place}'
            for name, tool in (("board", "tool"), ("toolless", "no tool"), ("real", "benchmark_model"))
        ]
        tool_of_this_project(folder)
        entries.append('version = "2.3.0"\n')
        entries.append(entries[2].replace('"real"', '"judged"', 1) + f'evaluation = "{folder}"\n')
        entries.append(entries[0].replace('"board"', '"scored"', 1) + f'evaluation = "{folder}/scripts"\n')
        (folder / "scripts").mkdir()
        for name in EVALUATION:
            (folder / "scripts" / name).symlink_to(folder / "scripts" / "tool")
        script(folder / "scripts" / "tool", "exit 1")
        entries.append(entries[0].replace('"board"', '"away"', 1).replace('"board"', '"nobody@board"'))
        (folder / "attached.toml").write_text("".join(entries))
        patch.setenv("FARM_ATTACHED", str(folder / "attached.toml"))
        found = Board(None, server, folder, put_model(folder / "store", tiny))  # type: ignore[arg-type]
        found.says(PRINTS)
        found.agent = EmbeddedAgent(folder, probe_command=probed)
        yield found
        found.agent.close()


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


TRUTH = (11, 11, 11, 11, 11, 11, 9, 9, 0, 0)
PICTURES = len(TRUTH)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Return a data set: of ten pictures the classifier of the tests has six right, and two more in three."""
    folder = tmp_path_factory.mktemp("pictures")
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        for number in range(PICTURES):
            columns = np.pad(np.repeat(np.arange(CLASSES) * 20, 56).astype(np.uint8), 48, mode="edge")
            square = np.broadcast_to(columns[None, :, None], (len(columns), len(columns), 3))
            content = io.BytesIO()
            Image.fromarray(np.ascontiguousarray(square)).save(content, "png")
            archive.writestr(f"p{number}.png", content.getvalue())
        archive.writestr("ground_truth.txt", "".join(f"{true}\n" for true in TRUTH))
    return folder / "data.zip"


def labelled(store: Path, data: Path, **asked: object) -> MeasurePlan:
    """Put labelled data into a store; return a plan with it."""
    sha256, size = put_model(store, data)
    return BRIEF.model_copy(update={"labelled": LabelledData(sha256=sha256, size_bytes=size, **asked)})


def test_outputs_and_labelled_pictures_are_judged_by_the_tools_of_the_device(board, pictures, tmp_path):
    device = next(device for device in board.agent.hello.devices if device.device_id == "judged")
    assert device.environment.keys() >= set(EVALUATION)
    (tmp_path / "model").write_bytes(classifier())
    model = put_model(board.folder / "store", tmp_path / "model")
    plan = labelled(board.folder / "store", pictures, at_least=0.2)
    result = board.agent.run(job(model, device="judged", plan=plan, delegate_options={"threads": 1}))
    assert result.reason is None
    m = result.measurement
    assert m is not None
    assert m.labelled is not None
    assert (m.labelled.metric, m.labelled.samples, m.labelled.right) == ("top1", PICTURES, 6)
    assert (m.labelled.ci95, m.labelled.verdict) == (share_interval(6, PICTURES), "pass")
    assert m.settings["labelled_by"] == f"{CLASSIFICATION} {device.environment[CLASSIFICATION]}"
    assert m.accuracy.reference is not None
    assert m.accuracy.reference.endswith(f"by inference_diff {device.environment[INFERENCE_DIFF]}")
    assert m.accuracy.mean_abs is not None
    assert m.accuracy.mean_abs < 1e-4
    assert (len(m.accuracy.outputs), m.accuracy.verdict) == (1, None)
    assert board.left == []


@pytest.mark.parametrize(
    ("classified", "says"),
    [
        # Two of ten are right, and 0.9 was asked for: as wrong as any output.
        ("Num evaluation runs: 10\nTop-1 Accuracy: 0.2", "labelled data, top1: 2 of 10 right"),
        pytest.param("Segmentation fault", "printed is none of its results", marks=pytest.mark.exhaustive),
    ],
)
def test_what_the_evaluation_tools_print_counts_or_ends_its_own_cell(board, pictures, classified, says):
    board.says(PRINTS)
    (board.folder / "scripts" / "classified").write_text(f"{classified}\n")
    printed = f"case $0 in *inference_diff) echo no list;; *) cat {board.folder}/scripts/classified;; esac"
    script(board.folder / "scripts" / "tool", printed)
    plan = labelled(board.folder / "store", pictures, at_least=0.9)
    result = board.agent.run(job(board.model, device="scored", plan=plan))
    assert result.status == "failed"
    assert says in result.reason.text
    if "Accuracy" in classified:
        assert result.measurement is not None
        accuracy = result.measurement.accuracy
        assert (accuracy.mean_abs, accuracy.verdict) == (None, None)
        assert accuracy.note.startswith("inference_diff: what the device's inference_diff printed is none of")


@pytest.mark.parametrize(
    ("printed", "says"),
    [
        ("Segmentation fault", "it begins with"),
        ("Num evaluation runs: 10", "no 'OutputDiff"),
        ("Num evaluation runs: 10\nTop-1 Accuracy: 0.2", "no top5 among its lines"),
        ("Num evaluation runs: 0\nTop-5 Accuracy: 0.2", "no top5 among its lines"),
        ("Num evaluation runs: 10\nTop-5 Accuracy: 1.5", "not between 0 and 1"),
    ],
)
def test_what_is_no_score_of_an_evaluation_tool_is_none(printed, says):
    with pytest.raises(LogError, match=says):
        score_of(printed, LabelledData(sha256="0" * 64, size_bytes=1, metric="top5"))


def test_a_mean_average_precision_that_a_tool_tells_has_no_interval_to_judge():
    data = LabelledData(sha256="0" * 64, size_bytes=1, metric="mAP", at_least=0.5)
    score = score_of("Num evaluation runs: 10\nOverall mAP: 0.2\n", data)
    assert (score.share, score.right, score.ci95, score.verdict) == (0.2, None, None, "inconclusive")


@pytest.mark.exhaustive
def test_a_wrong_arm_leaves_a_race_on_the_device_before_it_puts_others_behind(board, pictures):
    board.says(PRINTS)
    (board.folder / "scripts" / "diff").write_text(f"{DIFF}\n")
    right = "case $* in *use_xnnpack=false*) s=1;; *) s=0.1;; esac"
    prints = 'printf "Num evaluation runs: 10\\nTop-1 Accuracy: $s\\n"'
    judged = f"case $0 in *diff) cat {board.folder}/scripts/diff;; *) {right}; {prints};; esac"
    script(board.folder / "scripts" / "tool", judged)
    text = board.folder / "text"
    board.tool(f"case $* in *use_xnnpack=true*) sed 's/=100 /=50 /' {text};; *) cat {text};; esac")
    plan = labelled(board.folder / "store", pictures, at_least=0.9)
    results = board.arms("scored", plan.model_copy(update={"halving": "p50", "max_blocks": 4}), base="scored")
    wrong, kept = results["arm"], results["base"]
    assert (wrong.status, wrong.reason.code) == ("failed", "wrong_output")
    assert wrong.measurement.quality.stopped == "behind"
    assert len(wrong.measurement.blocks) == 1
    assert (kept.status, len(kept.measurement.blocks)) == ("done", 4)


@pytest.mark.parametrize(
    ("asked", "environment", "says"),
    [
        ({"metric": "cosine"}, EVALUATION, "top1 to top10 and mAP, not cosine"),
        ({"max_drop": 0.1}, EVALUATION, "tells no single answers"),
        ({"mean": (1.0,), "std": (2.0,)}, EVALUATION, "LiteRT's own alone"),
        ({"metric": "mAP"}, EVALUATION[:2], "the device has no coco_object_detection_run_eval"),
        ({"metric": "top3"}, (), "`evaluation` of its entry names the tools' folder"),
    ],
)
def test_labelled_data_that_no_tool_of_the_device_scores_is_refused_before_anything_is_copied(
    asked, environment, says
):
    data = LabelledData(sha256="0" * 64, size_bytes=1, **asked)
    with pytest.raises(NoDeviceError, match=says):
        tool_of(data, dict.fromkeys(environment, ""))


def test_objects_of_pictures_go_to_the_device_in_the_form_that_its_tool_reads(tmp_path):
    boxes = [{"image_id": 7, "category_id": 3, "bbox": [10, 20, 30, 40]}]
    boxes.append({"image_id": 7, "category_id": 3, "bbox": [0, 0, 100, 200], "iscrowd": 1})
    images = [{"id": 9, "file_name": "b.PNG", "width": 10, "height": 10}]
    images.append({"id": 7, "file_name": "sub/a.jpg", "width": 100, "height": 200})
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "b.PNG").write_bytes(b"b")
    (tmp_path / "data" / "sub" / "a.jpg").write_bytes(b"a")
    text = {"images": images, "annotations": boxes, "categories": [{"id": 3, "name": "cat"}]}
    (tmp_path / "data" / "instances.json").write_text(json.dumps(text))
    packed(DETECTION, tmp_path / "data", tmp_path, tmp_path / "out.tar")
    with tarfile.open(tmp_path / "out.tar") as archive:
        archive.extractall(tmp_path / "out", filter="data")
    flags = data_flags(DETECTION, str(tmp_path / "out"))
    truth = read_text_proto(Path(flags["ground_truth_proto"]).read_bytes(), "truth")
    assert [scene.file for scene in truth.scenes] == ["00000000.jpg", "00000001.png"]
    assert [len(scene.objects) for scene in truth.scenes] == [1, 0], "a crowd is no object of LiteRT's"
    (thing,) = truth.scenes[0].objects
    assert (thing.category, thing.box) == (3, pytest.approx((0.1, 0.1, 0.3, 0.2)))
    assert (Path(flags["ground_truth_images_path"]) / "00000000.jpg").read_bytes() == b"a"
    assert Path(flags["model_output_labels"]).read_text().splitlines() == ["???", "???", "???", "cat"]


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


def test_a_cancel_ends_the_arms_own_run_of_the_tool_and_nothing_else(tmp_path, tiny):
    class Line(Remote):
        ends = 0

        def hang_up(self):
            Line.ends += 1

        def put(self, file, target):
            arm.kill_if_cancelled()
            assert Line.ends == 0, "a copy is not cut off"

        def run_guarded(self, command, within_s=None):
            other.kill_if_cancelled()
            assert Line.ends == 0, "it is another arm's run"
            arm.kill_if_cancelled()
            return Answer(0, PRINTS)

    one = OverSsh(name="board", host="board", benchmark_model="/tool")
    line = Line(one)
    attempt = AttemptFile(
        job=job(("0" * 64, 1)), device=DEVICE, model_path=str(tiny), references="", attached=one
    )
    arm, other = (ToolArm(attempt, tmp_path / name, line, alone=False) for name in ("arm", "other"))
    for folder in (arm.folder, other.folder):
        folder.mkdir()
        mark_cancelled(folder)
    line.put(tiny, "/m")
    arm.do(lambda: None)
    assert arm.cancelled
    with pytest.raises(CancelledError):
        arm.run_block(1)
    assert Line.ends == 1


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
    pid = board.in_second_block()
    board.server.unplug()
    result = board.agent.expect(JobResult)
    assert result.reason is not None
    assert (result.status, result.reason.code) == ("failed", "device_lost")
    assert "board (ssh board)" in result.reason.text
    eventually(lambda: not alive(pid), "the tool runs on without its connection")


def test_a_cancelled_attempt_ends_its_tool_and_keeps_its_block(board):
    pid = board.in_second_block()
    board.agent.send(CancelJob(attempt_id=board.agent.expect(Heartbeat).attempt_id))
    result = board.agent.expect(JobResult)
    assert result.measurement is not None
    assert result.measurement.quality is not None
    assert (result.measurement.quality.stopped, len(result.measurement.blocks)) == ("cancelled", 1)
    eventually(lambda: not alive(pid), "the tool runs on although nobody waits for it")
    assert board.left == []


@pytest.mark.exhaustive
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
    ("printed", "kind", "text"),
    [
        (PRINTS, "litert", None),
        (PRINTS.replace("median=100 ", ""), "litert", "prints no median"),
        (PRINTS.replace("median=100 ", "median=0 "), "litert", "below the microsecond"),
        (PRINTS.replace("median=100 ", "median=nan "), "litert", "prints no median"),
        (PRINTS.replace("median=100 ", "median=1e99 "), "litert", "above days"),
        (f"WARN: Unconsumed cmdline flags: --use_xnnpack\n{PRINTS}", "litert", "does not know --use_xnnpack"),
        (PRINTS, "litert-gpu", "nothing of the model on its GPU"),
        (PARTIAL + PRINTS, "litert-gpu", None),
    ],
)
def test_a_run_counts_that_is_the_delegates_and_has_a_median(printed, kind, text):
    (run,) = read_log(printed)
    why = why_not_counted(run, kind)
    assert (why is None) if text is None else (why is not None and text in why.reason.text)


@pytest.mark.parametrize("number", ["1.2.3", "1e999", "nan", "inf", "9" * 400])
def test_a_log_with_a_number_that_is_none_is_no_log(number):
    with pytest.raises(LogError):
        list(read_log(PRINTS.replace("Init: 1000", f"Init: {number}")))
    with pytest.raises(LogError):
        list(read_log(PRINTS.replace("count=50", f"count={number}")))


def test_a_log_with_more_memory_than_a_machine_has_is_no_log():
    footprint = "Memory footprint delta from the start of the tool (MB): init=1 overall="
    assert [run.memory_bytes for run in read_log(f"{PRINTS}{footprint}2.5")] == [int(2.5 * 2**20)]
    with pytest.raises(LogError, match="no machine has"):
        list(read_log(f"{PRINTS}{footprint}{'9' * 400}"))


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("litert", {}, {"num_threads": "4", "use_xnnpack": "true"}),
        ("litert", {"resolver": "builtin", "threads": 2}, {"num_threads": "2", "use_xnnpack": "false"}),
        ("litert-gpu", {"precision": "fp16"}, {"use_gpu": "true", "gpu_precision_loss_allowed": "true"}),
        ("litert-gpu", {"require_full_delegation": True}, {"require_full_delegation": "true"}),
        ("litert", {"resolver": "reference"}, "no reference kernels"),
        ("litert", {"version": "2.2.0"}, "that of the tool there"),
        ("litert", {"api": "compiled_model"}, "no such flag"),
        ("litert", {"threads": 5}, "the device has 4 CPUs"),
    ],
)
def test_options_of_a_cell_become_flags_or_are_refused(tiny, kind, options, said):
    spec = job(("0" * 64, 1), delegate=kind, delegate_options=options, device="board")
    attempt = AttemptFile(job=spec, device=DEVICE, model_path=str(tiny), references="")
    if isinstance(said, str):
        with pytest.raises(NoDeviceError, match=said):
            tool_call(attempt, 4)
    else:
        flags = tool_call(attempt, 4).flags
        assert said.items() <= flags.items()
        assert (flags["num_runs"], flags["min_secs"], flags["warmup_runs"]) == ("12", "0", "1")


def test_values_that_are_given_go_to_the_device_as_bytes(tiny, tmp_path):
    values = np.arange(2 * 8 * 8 * 16, dtype=np.float32).reshape(2, 1, 8, 8, 16)
    np.save(tmp_path / "values.npy", values)
    data = InputData(sha256="0" * 64, size_bytes=1)
    spec = job(("0" * 64, 1), device="board", inputs={"image": InputSpec(data=data)})
    paths = {"image": str(tmp_path / "values.npy")}
    attempt = AttemptFile(job=spec, device=DEVICE, model_path=str(tiny), references="", input_paths=paths)
    call = tool_call(attempt, 4)
    assert call.input_bytes == {"image": values[0].tobytes()}
    words = call.words("/tool", "/m.tflite", {"image": "/at:1"})
    assert words[:2] == ["/tool", "--graph=/m.tflite"]
    assert words[-1] == "--input_layer_value_files=image:/at::1"


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
