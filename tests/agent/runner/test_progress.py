"""Warnings of the runtime are the attempt's phase while a model is prepared, and only then."""

import logging

from agent.attempt.files import read_progress, write_progress
from agent.runner.turns.measure import told
from runtime.delegates.gpu.keep import progress


def test_what_the_delegate_says_is_the_phase_that_the_agent_reads(tmp_path):
    with told(lambda text: write_progress(tmp_path, text)):
        logging.getLogger(progress.__name__).warning("gpu delegate: %s, for %.0f s now", "compiling", 5.2)
    assert read_progress(tmp_path) == "gpu delegate: compiling, for 5 s now"
    logging.getLogger(progress.__name__).warning("another word")
    assert read_progress(tmp_path) == "gpu delegate: compiling, for 5 s now"
