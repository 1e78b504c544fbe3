"""`farm-agent start` on a host that is not enrolled yet, against a real lab."""

from __future__ import annotations

import stat
from collections.abc import Iterator

import pytest

from tests import needs
from tests.orchestrator.trust.lab import TrustedLab, trusted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrustedLab]:
    with trusted_lab(tmp_path_factory.mktemp("lab"), needs.redis_server(), tls=True) as made:
        yield made


def test_an_agent_enrols_itself_at_its_first_start_and_starts_again_with_what_it_has(lab: TrustedLab) -> None:
    token = lab.farm("lab", "agents", "enrol", "rack-2")["token"]
    state, server = lab.folder / "second", lab.environment["FARM_ENDPOINT"]
    settings = {"FARM_ENROL_TOKEN": token, "FARM_SERVER": server}
    agent = lab.start_agent(state, **settings)
    agent.until(lambda: lab.is_active("rack-2"), "the agent's hello")
    credentials = state / "credentials.json"
    assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
    first = credentials.read_bytes()

    assert agent.stop() == 0
    again = lab.start_agent(state, **settings)
    again.until(
        lambda: again.tail().count("agent rack-2 serves its lab") == 2, "it starts with a token that is spent"
    )
    assert credentials.read_bytes() == first
    assert token not in again.tail()


def test_a_token_that_does_not_enrol_ends_the_start_with_one_line(lab: TrustedLab) -> None:
    token = lab.farm("lab", "agents", "enrol", "rack-3")["token"]
    spent = f"{'x' * 43}.{token.rpartition('.')[2]}"
    cases = (
        ({"FARM_ENROL_TOKEN": token}, "FARM_SERVER is not: set it to the farm's endpoint"),
        (
            {"FARM_ENROL_TOKEN": spent, "FARM_SERVER": lab.environment["FARM_ENDPOINT"]},
            "make a new one on the server: farm lab agents enrol NAME",
        ),
        ({"FARM_ENROL_TOKEN": "nonsense", "FARM_SERVER": "https://127.0.0.1:1"}, "is not a token of"),
        ({}, "this host is not enrolled"),
    )
    for number, (settings, said) in enumerate(cases):
        state = lab.folder / f"refused-{number}"
        agent = lab.start_agent(state, **settings)
        assert agent.end() == 1
        lines = agent.tail().strip().splitlines()
        assert len(lines) == 1, lines
        assert said in lines[0]
        assert not (state / "credentials.json").exists()
        assert spent not in lines[0]
