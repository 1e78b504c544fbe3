"""A signal stops a command, whatever Python was doing when it arrived."""

from __future__ import annotations

import os
import signal
import sys
import time
import weakref

import pytest

from orchestrator.cli.stopping import StoppedError, stoppable

PATIENCE_S = 30.0


class Watched:
    """Something that a weak reference can watch."""


def stopped_in_a_callback(number: int) -> None:
    """Send the signal in the callback of a weak reference, then wait."""
    watched = Watched()
    reference = weakref.ref(watched, lambda _: os.kill(os.getpid(), number))
    with stoppable():
        del watched
        assert reference() is None, "the callback ran, and Python discarded what it raised"
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_in_a_callback_that_discards_exceptions_stops_the_command(number):
    before = sys.unraisablehook
    with pytest.raises(StoppedError) as stopped:
        stopped_in_a_callback(number)
    assert stopped.value.exit_code == 128 + number
    assert sys.unraisablehook is before
