"""The share that others took from a round, by the kernel's counters, with their rounding subtracted."""

from __future__ import annotations

import math

import pytest

from agent.machine.counters import Window
from agent.machine.rounds import Round, SliceUse, allowance, taken

QUIET = {"from_s": 0.0, "wall_s": 1.0, "cpus": 2, "asleep_s": 0.0, "foreign_s": 0.0, "steal_s": 0.0,
         "throttled_s": 0.0, "waiting_s": 0.0, "swapped_in": 0}  # fmt: skip


def one_round(counted: dict[str, object] | None = None, **uses: SliceUse) -> Round:
    return Round(Window(**QUIET | (counted or {})), uses)


def use(ran_s: float | None, waited_s: float | None, wall_s: float = 0.5, **more: str) -> SliceUse:
    return SliceUse(wall_s, 2, ran_s, waited_s, **more)


@pytest.mark.parametrize(
    ("counted", "slice_use", "said"),
    [
        ({}, use(0.9, 0.0), None),
        # Others ran on one CPU for half of the slice, and a thread of the arm waited meanwhile.
        ({"foreign_s": 0.25}, use(0.75, 0.25), "other programs used 0.2 of 2 CPUs"),
        ({"foreign_s": 0.09}, use(0.8, 0.09), "others kept a thread of gpu from its CPU for"),
        # Nobody else ran: its own threads waited for each other.
        ({}, use(0.7, 0.3), None),
        # Others ran, but its own threads kept both CPUs busy all the time.
        ({"foreign_s": 0.08}, use(1.0, 0.3), None),
        # So little that rounding explains it.
        ({"foreign_s": 0.015}, use(0.9, 0.1), None),
        ({"throttled_s": 0.1}, use(0.9, 0.0), "a CPU quota stopped it for 0.100 s"),
        ({"steal_s": 0.2}, use(0.9, 0.0), "the hypervisor withheld 0.19 of 2 CPUs"),
        ({"foreign_s": None, "steal_s": None}, use(0.6, 0.2), "others kept a thread of gpu"),
        ({"foreign_s": 0.25}, use(None, None), "other programs used 0.2 of 2 CPUs"),
        # On a quiet processor the GPU had another guest.
        ({}, use(0.1, 0.0, disturbed="GPU clock: below 75 %"), "gpu: GPU clock: below 75 %"),
    ],
)
def test_a_round_is_disturbed_by_what_the_counters_say(counted, slice_use, said):
    found = one_round(counted, gpu=slice_use).disturbed
    assert (found is None) if said is None else found.startswith(said)


def test_the_allowance_is_the_share_that_others_took_of_all_slices():
    rounds = [one_round({"foreign_s": 0.2}, gpu=use(0.8, 0.05), cpu=use(0.5, 0.0)) for _ in range(4)]
    assert taken(rounds, "gpu") == pytest.approx(0.1), "what its threads waited"
    waiting = [one_round({"foreign_s": 0.1}, gpu=use(0.8, 0.2), cpu=use(0.5, 0.0)) for _ in range(4)]
    foreign_s = 0.4 - 2 * waiting[0].window.rounding_s / 2
    assert taken(waiting, "gpu") == pytest.approx(foreign_s / 4, abs=0.005), "its share of what others ran"
    assert taken(rounds, "cpu") == 0.0
    assert taken(rounds, "absent") == 0.0
    assert taken([], "gpu") == 0.0


def test_what_the_hypervisor_withheld_was_taken_from_every_arm():
    stolen = one_round({"steal_s": 0.4}, gpu=use(0.5, 0.0), cpu=use(0.5, 0.0))
    share = stolen.window.surely_stolen_s / 2
    assert share > 0.15
    assert taken([stolen], "gpu") == taken([stolen], "cpu") == pytest.approx(share)


@pytest.mark.parametrize(("waited_s", "factor"), [(0.0, 1.0), (0.015, 1.031), (0.25, 2.0), (0.5, 100.0)])
def test_the_allowance_is_what_others_can_have_slowed_an_arm_by(waited_s, factor):
    rounds = [one_round({"foreign_s": None}, gpu=use(0.5, waited_s)) for _ in range(3)]
    assert math.exp(allowance(rounds, "gpu")) == pytest.approx(factor, abs=0.002)


def test_many_cpus_do_not_make_a_quiet_machine_a_busy_one():
    """On 16 CPUs the counters of a round are off by tens of milliseconds; that is nobody's time."""
    quiet = {"cpus": 16, "foreign_s": 0.04, "wall_s": 0.3}
    assert one_round(quiet, gpu=SliceUse(0.1, 16, 1.5, 0.03)).disturbed is None
