"""The watch over persistent schedules, fed with made-up run times."""

import pytest

from runtime.delegates.gpu.watch import PAUSE_RUNS, SLOW_FACTOR, STRIKES, SpinWatch


@pytest.fixture
def watch():
    watch = SpinWatch("persistent", "plain")
    for _ in range(10):
        watch.note(1.0)
    return watch


def test_quiet_runs_keep_the_persistent_schedule(watch):
    for elapsed in (1.0, 0.9, SLOW_FACTOR * 0.85, 1.1):
        watch.note(elapsed)
    assert watch.next() == "persistent"
    assert watch.step_backs == 0


def test_starved_runs_step_back_for_a_while_and_then_try_again(watch):
    for _ in range(STRIKES):
        assert watch.next() == "persistent"
        watch.note(100.0)
    for _ in range(PAUSE_RUNS):
        assert watch.next() == "plain"
        watch.note(2.0)
    assert watch.next() == "persistent"
    assert watch.step_backs == 1


def test_second_loss_pauses_longer(watch):
    for pause in (PAUSE_RUNS, 2 * PAUSE_RUNS):
        for _ in range(STRIKES):
            watch.note(100.0)
        for _ in range(pause):
            assert watch.next() == "plain"
            watch.note(2.0)
        assert watch.next() == "persistent"


def test_single_hiccup_is_forgiven(watch):
    for _ in range(20):
        watch.note(100.0)
        watch.note(1.0)
    assert watch.next() == "persistent"
