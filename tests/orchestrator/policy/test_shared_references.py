"""The farm decides which agents' references the others judge by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from agent.wire.reference import ReferenceRecord
from orchestrator.policy.shared_references import Claim, shared

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def made(agent: str, file: str, key: str = "1", *, trusted: bool = False, minute: int = 0) -> Claim:
    record = ReferenceRecord(
        key=key * 64, kind="reference", maker="1/x86_64", sha256=file * 64, size_bytes=10
    )
    return Claim(agent, BEGIN + timedelta(minutes=minute), trusted, record)


def failed(agent: str, limit_s: float, *, trusted: bool = False, minute: int = 0) -> Claim:
    record = ReferenceRecord(
        key="1" * 64, kind="reference", maker="1/x86_64", failure=f"of {agent}", limit_s=limit_s
    )
    return Claim(agent, BEGIN + timedelta(minutes=minute), trusted, record)


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ([made("a", "f")], None),
        ([made("a", "f"), made("a", "f", minute=1)], None),
        ([made("a", "f"), made("b", "f")], "f"),
        ([made("evil", "e"), made("a", "f")], None),
        ([made("evil", "e"), made("a", "f"), made("b", "f")], "f"),
        ([made("evil", "e"), made("worse", "e"), made("a", "f"), made("b", "f")], None),
        ([made("own", "f", trusted=True)], "f"),
        ([made("own", "f", trusted=True), failed("a", 9), failed("b", 9)], "f"),
        ([made("a", "f"), failed("b", 9), failed("c", 9)], None),
    ],
)
def test_a_file_is_handed_on_once_two_agents_made_the_same_or_the_farms_own_did(claims, told):
    for order in (claims, claims[::-1]):
        assert [record.sha256[0] for record in shared(order, 2)] == ([told] if told else [])


def test_one_agent_is_enough_where_the_operator_says_so():
    assert [record.sha256[0] for record in shared([made("a", "f")], 1)] == ["f"]


def test_a_failure_needs_as_many_and_holds_for_the_shortest_time_that_all_have_waited():
    assert shared([failed("a", 9)], 2) == []
    (told,) = shared([failed("b", 5, minute=1), failed("a", 9)], 2)
    assert (told.failure, told.limit_s, told.sha256) == ("of a", 5, None)
    assert len(shared([failed("own", 9, trusted=True)], 2)) == 1


def test_agents_that_tell_one_file_two_sizes_do_not_agree():
    lying = made("evil", "f")
    lying = Claim("evil", BEGIN, False, lying.record.model_copy(update={"size_bytes": 1 << 40}))
    assert shared([lying, made("a", "f")], 2) == []


def test_the_newest_come_first():
    claims = [made("a", "f", key, minute=minute) for minute, key in enumerate("123")]
    assert [record.key[0] for record in shared(claims, 1)] == ["3", "2", "1"]
