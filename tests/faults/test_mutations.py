"""Each protection, taken away: the scenario that is to notice it does. Else it would prove nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.mutations import MUTATIONS
from tests.faults.test_agent_faults import (
    test_scenario_10_a_late_result_finds_its_cell_waiting_and_is_not_counted_even_so as late_result,
)
from tests.faults.test_agent_faults import (
    test_scenario_32_the_same_agent_twice_is_refused_and_the_same_host_twice_shares_the_lock as twins,
)
from tests.faults.test_message_faults import (
    test_scenario_26_a_storm_of_duplicates_runs_and_counts_everything_once as duplicates,
)
from tests.faults.test_scheduler_faults import (
    test_scenario_13_two_schedulers_at_once_cannot_both_give_a_device_work as two_schedulers,
)
from tests.needs import REPOSITORY

CAUGHT_BY = {
    "claim": (duplicates, r"was run \d+ times|a cell was run again"),
    "flock": (twins, "I4: .* ran together"),
    "unique-index": (two_schedulers, "'given', 'given'"),
    "epoch": (late_result, "the late result counted"),
}
"""Protection -> who notices that it is gone, and what it says."""


@pytest.mark.parametrize("protection", CAUGHT_BY)
def test_a_protection_that_is_taken_away_is_missed(fault_lab, protection, record_property):
    fault_lab.mutation = protection
    scenario, notices = CAUGHT_BY[protection]
    record_property("protection", protection)
    record_property("scenario", scenario.__name__)
    with pytest.raises(AssertionError, match=notices) as caught:
        scenario(fault_lab)
    record_property("noticed", str(caught.value).splitlines()[0][:160])


def test_all_of_them_find_what_they_take_away():
    """In a process of its own, which is without it for good."""
    program = "import sys; from tests.faults import mutations; list(map(mutations.apply, sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", program, *MUTATIONS], cwd=REPOSITORY, check=True)
