from __future__ import annotations

import stat
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update

from agent.link.signing import AgentSeal, TrustedFarmKeys
from agent.wire.credentials import Applicant, Credentials
from agent.wire.envelope import SigningKey, open_envelope, seal
from agent.wire.messages import AgentHello
from agent.wire.service_urls import crosses_in_the_clear, signed_in, without_secrets
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.db import tables
from orchestrator.db.devices import agents, credentials, devices
from orchestrator.db.engine.sessions import Database
from orchestrator.db.engine.turn import Turn
from orchestrator.db.migrate import migrate
from orchestrator.errors import FarmError, UsageError
from orchestrator.trust import enrolment, farm_key_rotation, signing
from orchestrator.trust.farm_key_rotation import FarmKeys, farm_key
from orchestrator.trust.signing import AgentKeys, FarmSeal
from runtime.common.durable import create_once

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FARM = SigningKey.new()
HELLO = b'{"type":"alive","waiting":0}'


@pytest.fixture
def database(tmp_path):
    made = Database.connect(tmp_path / "farm.db")
    migrate(made)
    yield made
    made.close()


def invite(database, name="rack-1", now=NOW, **options):
    with database.write() as session:
        return enrolment.invite(session, name, FARM.public.key_id, now, **options)


def enrol(database, token, applicant=None, now=NOW):
    applicant = applicant or Applicant.new()
    request = enrolment.Request.read(applicant.request(token))
    with database.write() as session:
        return enrolment.enrol(session, request, now), applicant


def enrolled(database, name="rack-1"):
    """Enrol an agent today; return it, and the seal that it signs with."""
    now = datetime.now(UTC)
    _, applicant = enrol(database, invite(database, name, now), now=now)
    return applicant


def agent_of(database, applicant, now=NOW):
    with database.read() as session:
        return credentials.agent_of_bearer(session, applicant.token, now)


def test_an_agent_is_known_by_its_token_and_the_database_holds_no_secret(database, tmp_path):
    token = invite(database)
    name, applicant = enrol(database, token)
    assert (name, agent_of(database, applicant)) == ("rack-1", "rack-1")
    content = b"".join(path.read_bytes() for path in tmp_path.glob("farm.db*"))
    assert applicant.key.public.text.encode() in content
    secrets = (token, token.partition(".")[0], applicant.token, applicant.password, applicant.key.secret())
    assert [secret for secret in secrets if secret.encode() in content] == []


def test_a_token_is_good_once_and_for_its_time(database):
    token = invite(database)
    enrol(database, token)
    with pytest.raises(UsageError, match="one-time token"):
        enrol(database, token)
    late = invite(database, "rack-2")
    with pytest.raises(UsageError, match="one-time token"):
        enrol(database, late, now=NOW + enrolment.VALID)
    with pytest.raises(UsageError, match="one-time token"):
        enrol(database, f"{'x' * 43}.{FARM.public.key_id}")


def test_of_two_agents_that_present_one_token_at_once_one_is_enrolled(postgres_url):
    database = Database.connect(postgres_url)
    migrate(database)
    request = enrolment.Request.read(Applicant.new().request(invite(database)))
    other = enrolment.Request.read(Applicant.new().request(request.token))

    def use_other():
        # No turn of `Database.write`, which would wait for its own: the token itself lets one pass only.
        with database.engine.connect() as connection, Turn(connection) as turn:
            enrolment.enrol(turn, other, NOW)
            turn.commit()

    with ThreadPoolExecutor(1) as pool:
        with database.engine.connect() as connection, Turn(connection) as turn:
            enrolment.enrol(turn, request, NOW)
            turn.flush()
            second = pool.submit(use_other)
            waits_for_lock(database, second)
            turn.commit()
        with pytest.raises(UsageError, match="one-time token"):
            second.result()
    with database.read() as session:
        (known,) = credentials.valid(session, NOW)
    assert known.key_id == request.public_key.key_id
    database.close()


def waits_for_lock(database, other):
    """Return once the `other`'s transaction waits for this one, or ended without."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    with database.engine.connect() as connection:
        while not other.done() and not connection.exec_driver_sql(waiting).scalar():
            connection.rollback()
            time.sleep(0.02)


@pytest.mark.parametrize("revoked", [False, True])
def test_a_known_key_enrols_no_second_time_and_its_token_stays_unused(database, revoked):
    _, applicant = enrol(database, invite(database))
    if revoked:
        with database.write() as turn:
            credentials.revoke_all(turn, "rack-1", NOW)
    token = invite(database, "rack-2")
    with pytest.raises(UsageError, match="key is known already"):
        enrol(database, token, applicant)
    assert agent_of(database, applicant) == (None if revoked else "rack-1")
    assert enrol(database, token)[0] == "rack-2"


def test_a_new_token_ends_the_one_before(database):
    first, second = invite(database), invite(database)
    with pytest.raises(UsageError, match="one-time token"):
        enrol(database, first)
    assert enrol(database, second)[0] == "rack-1"


@pytest.mark.parametrize("name", ["", "-a", "a.b", "a/b", "a b", "a*", "x" * 64, "ä"])
def test_names_that_would_blur_keys_or_device_ids_are_refused(database, name):
    with pytest.raises(UsageError, match="cannot be an agent's name"):
        invite(database, name)


def test_an_agent_that_was_only_invited_can_be_revoked_and_is_not_listed_as_enrolled(database):
    token = invite(database)
    with pytest.raises(UsageError, match="once enrolled: none"):
        invite(database, "rack-9", overlap=timedelta(hours=1))
    with database.write() as turn:
        assert credentials.revoke_all(turn, "rack-1", NOW)
    with pytest.raises(UsageError, match="one-time token"):
        enrol(database, token)


def test_a_removed_agent_is_active_again_once_it_enrols_and_not_by_a_rotation(database):
    hello = AgentHello(agent_id="rack-1", host="h", version="0", devices=())
    with database.write() as turn:
        devices.record_hello(turn, hello, NOW, sole=False)

    def leaving() -> dict[str, str]:
        with database.read() as session:
            return dict(agents.leaving(session))

    enrol(database, invite(database))
    with database.write() as turn:
        agents.set_state(turn, "rack-1", tables.AGENT_REMOVED)
    enrol(database, invite(database, overlap=timedelta(hours=1)))
    assert leaving() == {"rack-1": tables.AGENT_REMOVED}
    with database.write() as turn:
        credentials.revoke_all(turn, "rack-1", NOW)
    enrol(database, invite(database))
    assert leaving() == {}


def test_enrolling_twice_and_rotating_a_stranger_are_mistakes(database):
    enrol(database, invite(database))
    with pytest.raises(UsageError, match="farm lab agents rotate rack-1"):
        invite(database)
    with pytest.raises(UsageError, match=r"not enrolled.*rack-1"):
        invite(database, "rack-9", overlap=timedelta(hours=1))


def test_a_rotation_overlaps_and_then_the_new_secrets_alone_are_good(database):
    _, old = enrol(database, invite(database))
    _, new = enrol(database, invite(database, overlap=timedelta(minutes=10)))
    before, after = NOW + timedelta(minutes=9), NOW + timedelta(minutes=10)
    assert [agent_of(database, which, before) for which in (old, new)] == ["rack-1", "rack-1"]
    assert [agent_of(database, which, after) for which in (old, new)] == [None, "rack-1"]


def test_a_revocation_ends_secrets_and_open_tokens_at_once(database):
    _, applicant = enrol(database, invite(database))
    token = invite(database, overlap=timedelta(hours=1))
    with database.write() as session:
        assert credentials.revoke_all(session, "rack-1", NOW)
        assert not credentials.revoke_all(session, "nobody", NOW)
    assert agent_of(database, applicant) is None
    with pytest.raises(UsageError, match="one-time token"):
        enrol(database, token)
    assert enrol(database, invite(database))[0] == "rack-1"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"proof": SigningKey.new().prove("t")}, "prove"),
        ({"public_key": SigningKey.new().public.text}, "prove"),
        ({"public_key": "x"}, "prove"),
        ({"token_sha256": "ABC"}, "64 hex"),
        ({"password_sha256": "ABC"}, "64 hex"),
        ({"token": 7}, "exactly these"),
        ({"more": "x"}, "exactly these"),
    ],
)
def test_a_request_that_does_not_prove_its_key_is_refused(changed, why):
    with pytest.raises(UsageError, match=why):
        enrolment.Request.read({**Applicant.new().request("t"), **changed})


def test_an_agent_trusts_only_the_farm_that_made_its_token():
    granted = {
        "agent_id": "a",
        "broker_url": "redis://h/0",
        "broker_user": "farm:agent.a",
        "key_prefix": "farm:",
    }
    token, applicant = f"secret.{FARM.public.key_id}", Applicant.new()
    made = applicant.accept(token, {**granted, "farm_key": FARM.public.text})
    assert made.broker_url == f"redis://farm%3Aagent.a:{applicant.password}@h/0"
    with pytest.raises(ValueError, match="another farm"):
        applicant.accept(token, {**granted, "farm_key": SigningKey.new().public.text})
    with pytest.raises(ValueError, match="lacks farm_key"):
        applicant.accept(token, granted)


def test_credentials_are_for_their_user_alone(tmp_path):
    applicant, token = Applicant.new(), f"s.{FARM.public.key_id}"
    granted = {"agent_id": "a", "broker_url": "redis://h/0", "broker_user": "u", "key_prefix": "farm:"}
    made = applicant.accept(token, {**granted, "farm_key": FARM.public.text})
    made.write(tmp_path / "state")
    assert Credentials.read(tmp_path / "state") == made
    assert stat.S_IMODE((tmp_path / "state" / "credentials.json").stat().st_mode) == 0o600
    hidden = (applicant.token, applicant.password, applicant.key.secret())
    assert [secret for secret in hidden if secret in f"{made!r}{applicant!r}"] == []


def test_the_farms_key_stays_the_same_and_is_for_its_user_alone(tmp_path):
    key = farm_key(tmp_path / "keys")
    assert farm_key(tmp_path / "keys").secret() == key.secret()
    path = tmp_path / "keys" / "farm.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(FarmError, match="chmod 600"):
        farm_key(tmp_path / "keys")
    path.chmod(0o600)
    path.write_text("nonsense")
    with pytest.raises(FarmError, match="not a key of the farm"):
        farm_key(tmp_path / "keys")


def test_nothing_but_the_farms_key_is_left_where_it_was_made_and_another_thing_in_its_place_is_named(
    tmp_path,
):
    farm_key(tmp_path)
    path = tmp_path / "farm.key"
    assert list(tmp_path.iterdir()) == [path]
    path.unlink()
    path.mkdir(0o700)
    with pytest.raises(FarmError, match="cannot be used: Is a directory"):
        farm_key(tmp_path)


def test_of_two_processes_that_make_the_farms_key_at_once_both_get_the_first_ones(tmp_path, monkeypatch):
    folder, faster = tmp_path / "keys", []

    def create_after_another(path, data, mode):
        monkeypatch.setattr(farm_key_rotation, "create_once", create_once)
        faster.append(farm_key(folder).secret())
        create_once(path, data, mode)

    monkeypatch.setattr(farm_key_rotation, "create_once", create_after_another)
    slower = farm_key(folder).secret()
    assert faster == [slower]
    assert farm_key(folder).secret() == slower
    assert [path.name for path in folder.iterdir()] == ["farm.key"]


def test_the_server_opens_what_a_known_agent_signed_once(database):
    applicant, keys = enrolled(database), AgentKeys(database)
    envelope = seal(applicant.key, "rack-1", HELLO, 1000.0)
    assert FarmSeal(lambda: FarmKeys(FARM), keys).open(envelope) == ("rack-1", HELLO)
    with pytest.raises(ValueError, match=r"agent rack-1: it was received before"):
        keys.open(envelope)


def test_the_server_refuses_strangers_and_who_speaks_for_others(database):
    one, _, keys = enrolled(database), enrolled(database, "rack-2"), AgentKeys(database)
    with pytest.raises(ValueError, match="no enrolled agent's"):
        keys.open(seal(SigningKey.new(), "rack-1", HELLO, 1000.0))
    with pytest.raises(ValueError, match="signs for another"):
        keys.open(seal(one.key, "rack-2", HELLO, 1000.0))
    for text in ("", "[" * 100_000, '{"agent_id":"rack-1","payload":"{}"}'):
        with pytest.raises(ValueError, match="no signed envelope"):
            keys.open(text)


def test_a_revoked_key_is_refused_by_a_server_that_knew_it(database, monkeypatch):
    monkeypatch.setattr(signing, "REFRESH_S", 0.0)
    applicant, keys = enrolled(database), AgentKeys(database)
    keys.open(seal(applicant.key, "rack-1", HELLO, 1000.0))
    with database.write() as session:
        credentials.revoke_all(session, "rack-1", datetime.now(UTC))
    with pytest.raises(ValueError, match="was revoked"):
        keys.open(seal(applicant.key, "rack-1", HELLO, 1001.0))


def test_old_messages_are_known_as_such_after_a_restart_of_the_server(database):
    applicant, keys = enrolled(database), AgentKeys(database)
    keys.open(seal(applicant.key, "rack-1", HELLO, 1_000_000.0))
    keys.save()
    with pytest.raises(ValueError, match="expired"):
        AgentKeys(database).open(seal(applicant.key, "rack-1", HELLO, 900_000.0))


def newest_of(database):
    with database.read() as session:
        return [entry.newest_issued for entry in credentials.valid(session, datetime.now(UTC))]


def forget_newest(database):
    with database.write() as turn:
        turn.exec(update(tables.Credential).values(newest_issued=0.0))


def test_the_newest_times_are_stored_now_and_then_and_not_with_every_message(database, monkeypatch):
    monkeypatch.setattr(signing, "REFRESH_S", 0.0)
    applicant, keys = enrolled(database), AgentKeys(database, _saved_at_s=float("-inf"))
    for issued in (1000.0, 1001.0):
        keys.open(seal(applicant.key, "rack-1", HELLO, issued))
    assert newest_of(database) == [0.0]
    keys._saved_at_s = float("-inf")
    keys.open(seal(applicant.key, "rack-1", HELLO, 1002.0))
    assert newest_of(database) == [1001.0]


def test_a_newest_time_that_is_stored_is_not_written_again(database):
    applicant, keys = enrolled(database), AgentKeys(database)
    keys.open(seal(applicant.key, "rack-1", HELLO, 1000.0))
    keys.save()
    restarted = AgentKeys(database)
    restarted.agents()
    assert newest_of(database) == [1000.0]
    forget_newest(database)
    for server in (keys, restarted):
        server.save()
        assert newest_of(database) == [0.0]


def test_a_key_in_the_database_that_cannot_be_read_is_named_and_costs_no_other_agent_its_place(
    database, caplog
):
    enrolled(database, "rack-2")
    with database.write() as turn:
        turn.exec(update(tables.Credential).values(public_key="x"))
    applicants = {name: enrolled(database, name) for name in ("rack-1", "rack-3")}
    keys = AgentKeys(database)
    for name, applicant in applicants.items():
        assert keys.open(seal(applicant.key, name, HELLO, 1000.0)).agent_id == name
    assert keys.agents() == set(applicants)
    assert "no usable key of agent rack-2" in caplog.text


def test_an_agent_opens_only_what_the_farm_signed_for_it_and_remembers_over_restarts(tmp_path):
    def agents_seal():
        trusted = TrustedFarmKeys(FARM.public, tmp_path / "farm-keys.json")
        return AgentSeal("rack-1", SigningKey.new(), trusted, tmp_path / "seen")

    message = b'{"attempt_id":"a","type":"cancel"}'
    envelope = seal(FARM, "rack-1", message, 1000.0)
    assert agents_seal().open(envelope) == message
    with pytest.raises(ValueError, match="received before"):
        agents_seal().open(envelope)
    with pytest.raises(ValueError, match="is for agent 'rack-2'"):
        agents_seal().open(seal(FARM, "rack-2", message, 1000.0))
    with pytest.raises(ValueError, match="signed with key"):
        agents_seal().open(seal(SigningKey.new(), "rack-1", message, 1000.0))


def test_an_agent_with_a_clock_behind_still_stamps_after_what_it_heard(tmp_path):
    key, ahead = SigningKey.new(), 9e9
    trusted = TrustedFarmKeys(FARM.public, tmp_path / "farm-keys.json")
    sealing = AgentSeal("rack-1", key, trusted, tmp_path / "seen")
    sealing.open(seal(FARM, "rack-1", HELLO, ahead))
    assert open_envelope(sealing.seal(HELLO), key.public).issued >= ahead


def test_a_restarted_agent_stamps_after_what_it_heard_and_forgets_what_has_expired(tmp_path):
    key, trusted = SigningKey.new(), TrustedFarmKeys(FARM.public, tmp_path / "farm-keys.json")
    sealing = AgentSeal("rack-1", key, trusted, tmp_path / "seen")
    for issued in (1000.0, 9e9):
        sealing.open(seal(FARM, "rack-1", HELLO, issued))
    assert len((tmp_path / "seen").read_text().splitlines()) == 2
    restarted = AgentSeal("rack-1", key, trusted, tmp_path / "seen")
    assert len((tmp_path / "seen").read_text().splitlines()) == 1
    assert open_envelope(restarted.seal(HELLO), key.public).issued >= 9e9


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("redis://lab/0", True),
        ("http://10.0.0.1:8460", True),
        ("redis://127.0.0.1:6379/0", False),
        ("redis://[::1]/0", False),
        ("rediss://lab/0", False),
        ("redis+socket:///run/redis.sock", False),
        ("redis://127.evil.example/0", True),
    ],
)
def test_what_crosses_a_network_in_the_clear(url, clear):
    assert crosses_in_the_clear(url) is clear


def test_users_are_put_into_and_taken_out_of_urls():
    for plain in ("redis://h:1/0", "rediss://[::1]:1/0", "redis+socket:///run/r.sock?virtual_host=1"):
        full = signed_in(plain, "farm:agent.a", "p")
        assert "farm%3Aagent.a:p@" in full
        assert without_secrets(full) == plain


def test_one_machine_has_no_agents_to_enrol(database, tmp_path):
    from orchestrator.trust.credentials_service import CredentialsService

    with pytest.raises(UsageError, match="only a lab"):
        CredentialsService.open(FarmHome(tmp_path), LabConfig(), database)
