"""Receive the agent's cancel of an arm, and end what the arm is doing at once."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence

from agent.attempt.files import CANCEL_SIGNAL, is_cancelled, mark_ending
from agent.runner.turns.comparison import AnyArm


@contextlib.contextmanager
def ended_when_asked(arms: Sequence[AnyArm]) -> Iterator[None]:
    """End what an arm is doing once the agent has cancelled it, whichever arm has its turn.

    SIGTERM is for all of them. Where no block is finished, and where the time limit is over, it ends this
    process as it does any other.
    """

    def on_cancel(_number: int = 0, _frame: object = None) -> None:
        for arm in arms:
            arm.kill_if_cancelled()

    def on_terminate(number: int, _frame: object = None) -> None:
        if all(is_cancelled(arm.folder) for arm in arms) and any(arm.has_blocks for arm in arms):
            mark_ending(arms[0].folder)
            os.kill(os.getpid(), CANCEL_SIGNAL)  # for whoever waits for a process meanwhile
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    cancel_before, terminate_before = (signal.getsignal(number) for number in (CANCEL_SIGNAL, signal.SIGTERM))
    signal.signal(CANCEL_SIGNAL, on_cancel)
    signal.signal(signal.SIGTERM, on_terminate)
    try:
        yield
    finally:
        signal.signal(CANCEL_SIGNAL, cancel_before)
        signal.signal(signal.SIGTERM, terminate_before)
