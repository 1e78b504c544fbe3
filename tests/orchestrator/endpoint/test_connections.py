"""The connection that is closed for another costs its owner least and others most."""

from __future__ import annotations

import logging
import math

import pytest

from orchestrator.endpoint import connections
from orchestrator.endpoint.connections import Connection, Connections, network_of


class Table:
    """Connections by number; `closed` lists those that were closed, in order."""

    def __init__(self, most: int = 100) -> None:
        self.connections = Connections(most)
        self.closed: list[int] = []
        self._by_number: dict[int, Connection] = {}

    def add(self, number: int, address: str = "10.0.0.1", owner: str | None = None) -> Connection:
        made = Connection(address, lambda: self.closed.append(number), math.inf)
        self._by_number[number] = made
        self.connections.add(made)
        if owner is not None:
            self.connections.vouch(made, owner)
        return made

    def here(self) -> list[int]:
        return [number for number, one in self._by_number.items() if one in self.connections]


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setattr(connections, "MOST_OF_ONE_ADDRESS", 3)
    monkeypatch.setattr(connections, "MOST_STRANGERS", 6)
    monkeypatch.setattr(connections, "MOST_OF_ONE_OWNER", 4)
    return Table()


def test_the_oldest_of_an_address_makes_room_for_its_newest(table: Table) -> None:
    table.add(1, "10.0.0.2")
    for number in range(2, 7):
        table.add(number)
    assert table.closed == [2, 3]
    assert table.here() == [1, 4, 5, 6]


def test_many_addresses_together_close_those_of_the_one_that_has_most(table: Table) -> None:
    for number in range(3):
        table.add(number, "10.0.0.1")
    for number in range(3, 8):
        table.add(number, f"10.0.0.{number}")
    assert table.closed == [0, 1]


def test_what_a_token_vouched_for_counts_for_its_owner_and_not_for_its_address(table: Table) -> None:
    for number in range(3):
        table.add(number, owner=f"agent {number}")
    for number in range(3, 20):
        table.add(number)
    assert table.here() == [0, 1, 2, 17, 18, 19]


def test_one_owner_closes_its_own_connections_alone(table: Table) -> None:
    table.add(0, owner="agent other")
    for number in range(1, 7):
        table.add(number, owner="agent greedy")
    assert table.closed == [1, 2]


@pytest.mark.usefixtures("table")
def test_at_the_limit_of_all_the_owner_that_has_most_makes_room() -> None:
    table = Table(most=6)
    for number in range(4):
        table.add(number, owner="agent greedy")
    table.add(4, owner="agent other")
    table.add(5, owner="agent other")
    table.add(6)
    assert table.closed == [0]


def test_what_is_being_answered_is_not_closed_for_another(table: Table) -> None:
    busy = table.add(0)
    busy.waits = False
    for number in range(1, 5):
        table.add(number)
    assert table.closed == [1, 2]


def test_where_everything_is_being_answered_the_newest_goes(table: Table) -> None:
    for number in range(3):
        table.add(number).waits = False
    table.add(3).waits = False
    table.add(4)
    assert table.here() == [0, 1, 2]


def test_a_passed_deadline_closes_and_a_flood_is_one_line_of_the_log(
    table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for number in range(3):
        table.add(number).deadline_s = number + 0.5
    table.connections.expire(2.0)
    assert (table.closed, caplog.messages) == ([0, 1], [])
    for number in range(3, 200):
        table.add(number)
    for now in range(3, 60):
        table.connections.expire(float(now))
    (line,) = caplog.messages
    assert "connections were closed" in line
    assert line.endswith("most were of 10.0.0.1")


@pytest.mark.parametrize(
    ("address", "counts_as"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_a_machine_cannot_pass_for_many_by_its_many_addresses(address: str, counts_as: str) -> None:
    assert network_of(address) == counts_as
