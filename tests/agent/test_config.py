"""An agent's times are numbers of seconds that a wait can have."""

from __future__ import annotations

import pytest

from agent.config import LinkTimes


@pytest.mark.parametrize("text", ["nan", "inf", "0", "-1", "soon"])
def test_a_time_that_no_wait_can_have_is_refused_by_its_variable(text: str) -> None:
    with pytest.raises(ValueError, match=f"FARM_WATCHDOG_S: '{text}' is not"):
        LinkTimes.from_environment({"FARM_WATCHDOG_S": text})
    assert LinkTimes.from_environment({"FARM_WATCHDOG_S": "2.5"}).watchdog_s == 2.5
