"""A growing log in pieces: nothing twice, nothing too often, nothing too long."""

from __future__ import annotations

import sys

from agent.processes.log_tailer import PAUSE_S, PIECE_BYTES, OutputReader, Piece
from agent.wire.messages import CancelJob, JobResult, RunnerOutput
from tests.agent.embedded_agent import job


def add(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_pieces_follow_each_other_and_a_split_character_is_whole(tmp_path):
    log = tmp_path / "log"
    reader = OutputReader(log)
    assert reader.piece(0.0) is None
    add(log, b"one \xe2\x82")
    assert reader.piece(0.0) == Piece(0, "one ")
    add(log, b"\xac \x00\xff\n")
    assert reader.piece(PAUSE_S / 2) is None
    assert reader.piece(PAUSE_S) == Piece(4, "€ \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\n")
    assert reader.piece(3 * PAUSE_S) is None


def test_of_a_flood_the_end_is_told_and_the_rest_counted(tmp_path):
    log = tmp_path / "log"
    reader = OutputReader(log)
    add(log, b"first\n")
    reader.piece(0.0)
    add(log, b"x" * 100_000 + b"the end")
    piece = reader.piece(PAUSE_S)
    assert piece is not None
    assert len(piece.text) == PIECE_BYTES
    assert piece.text.endswith("xthe end")
    assert piece.start + len(piece.text) == 6 + 100_007


def test_an_agent_tells_what_its_runner_writes_while_it_runs(start_agent, stored):
    script = "import sys, time; print('tuning', flush=True); time.sleep(600)"
    agent = start_agent(runner=[sys.executable, "-c", script])
    spec = job(stored)
    agent.send(spec)
    told = agent.expect(RunnerOutput)
    assert (told.start, told.text) == (0, "tuning\n")
    agent.send(CancelJob(attempt_id=spec.attempt_id))
    assert agent.expect(JobResult).log_tail.startswith("tuning\n")
