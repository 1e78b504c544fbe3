"""Another key for the farm: both are good for a while, agents learn of it by themselves, no job is lost."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.link.signing import AgentSeal, TrustedFarmKeys
from agent.wire.credentials import Applicant
from agent.wire.envelope import SigningKey, keys_message, open_envelope, read_keys, seal
from orchestrator.config.home import FarmHome
from orchestrator.db.engine.sessions import Database
from orchestrator.db.migrate import migrate
from orchestrator.errors import FarmError, UsageError
from orchestrator.trust import enrolment, farm_key_rotation
from orchestrator.trust.farm_key_rotation import FarmKeyFolder, FarmKeys, farm_key
from orchestrator.trust.signing import AgentKeys, FarmSeal
from tests import needs
from tests.orchestrator.trust.lab import TrustedLab, trusted_lab

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
NOBODY = 65534
HELLO = b'{"type":"alive","waiting":0}'
JOB = b'{"attempt_id":"a","type":"cancel"}'


class Pair:
    """A farm and one enrolled agent, each with its own seal; words go between them as envelopes."""

    def __init__(self, folder: Path) -> None:
        self.keys_folder, self.folder = folder / "keys", folder
        self.keys = FarmKeys(farm_key(self.keys_folder))
        self.database = Database.connect(folder / "farm.db")
        migrate(self.database)
        now = datetime.now(UTC)
        with self.database.write() as session:
            token = enrolment.invite(session, "rack-1", self.keys.current.public.key_id, now)
            self.applicant = Applicant.new()
            enrolment.enrol(session, enrolment.Request.read(self.applicant.request(token)), now)
        self.enrolled = self.keys.current.public
        self.farm = FarmSeal(lambda: self.keys, AgentKeys(self.database))
        self.restart_agent()

    def restart_agent(self) -> None:
        trusted = TrustedFarmKeys(self.enrolled, self.folder / "farm-keys.json")
        self.agent = AgentSeal("rack-1", self.applicant.key, trusted, self.folder / "seen")

    def rotate(self) -> None:
        self.keys = farm_key_rotation.rotate(self.keys_folder, NOW, LATER)

    def tell(self) -> None:
        """One sign of life, and what the farm has to say to it."""
        self.farm.open(self.agent.seal(HELLO))
        for name, envelope in self.farm.pending():
            assert (name, self.agent.open(envelope)) == ("rack-1", None)

    def send(self) -> str:
        """Id of the key that a job is signed with; the agent takes it."""
        envelope = self.farm.seal("rack-1", JOB)
        assert self.agent.open(envelope) == JOB
        return envelope.split(".")[1]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.database.close()


def test_an_agent_is_spoken_to_with_the_key_that_it_knows_until_it_knows_the_new_one(pair: Pair) -> None:
    old = pair.keys.current.public.key_id
    pair.tell()
    pair.rotate()
    new = pair.keys.current.public.key_id
    assert (pair.send(), new != old) == (old, True)
    waits = pair.farm.seal("rack-1", JOB)
    pair.tell()
    assert pair.agent.farm.ids == (new, old)
    pair.tell()
    assert pair.send() == new
    assert pair.agent.open(waits) == JOB, "signed with the former key, and under way since"

    pair.keys = farm_key_rotation.retire(pair.keys_folder, NOW)
    pair.tell()
    assert pair.agent.farm.ids == (new,)
    assert pair.send() == new
    pair.restart_agent()
    assert pair.send() == new, "it remembers"


def test_a_retired_key_signs_nothing_any_more(pair: Pair) -> None:
    former = pair.keys.current
    pair.rotate()
    pair.tell()
    pair.tell()
    pair.keys = farm_key_rotation.retire(pair.keys_folder, NOW)
    pair.tell()
    for said in (JOB, keys_message([SigningKey.new().public])):
        with pytest.raises(ValueError, match="which this agent trusts"):
            pair.agent.open(seal(former, "rack-1", said, 2e9))
    assert pair.agent.farm.ids == (pair.keys.current.public.key_id,)


def test_an_agent_that_was_away_all_the_time_is_named_with_the_way_back(pair: Pair) -> None:
    pair.rotate()
    pair.keys = farm_key_rotation.retire(pair.keys_folder, NOW)
    with pytest.raises(
        ValueError, match=r"rack-1 trusts key .* which was retired.*farm lab agents rotate rack-1"
    ):
        pair.farm.open(pair.agent.seal(HELLO))
    assert pair.farm.pending() == ()
    with pytest.raises(ValueError, match="replaced while this agent was away"):
        pair.agent.open(pair.farm.seal("rack-1", JOB))


def test_only_a_key_that_is_trusted_can_name_others(pair: Pair) -> None:
    stranger = SigningKey.new()
    with pytest.raises(ValueError, match="signed with key"):
        pair.agent.open(seal(stranger, "rack-1", keys_message([stranger.public]), 2e9))
    for bad in (
        b'{"type":"farm-keys"}',
        b'{"type":"farm-keys","keys":[]}',
        b'{"type":"farm-keys","keys":[1]}',
    ):
        with pytest.raises(ValueError, match="key"):
            pair.agent.open(seal(pair.keys.current, "rack-1", bad, 2e9))
    assert pair.agent.farm.ids == (pair.keys.current.public.key_id,)


def test_an_enrolment_with_another_key_ends_what_was_told_before(pair: Pair) -> None:
    pair.rotate()
    pair.tell()
    pair.enrolled = SigningKey.new().public
    pair.restart_agent()
    assert pair.agent.farm.ids == (pair.enrolled.key_id,)


def test_announced_keys_that_cannot_be_read_are_named_with_the_way_back(pair: Pair) -> None:
    (pair.folder / "farm-keys.json").write_text("[]")
    with pytest.raises(ValueError, match=r"farm-keys\.json is malformed; enrol this host again"):
        pair.restart_agent()


def test_an_agent_is_not_told_again_with_every_word(pair: Pair) -> None:
    pair.rotate()
    told = 0
    for _ in range(20):
        pair.farm.open(pair.agent.seal(HELLO))
        told += len(pair.farm.pending())
    assert told == 1


def test_what_an_agent_trusts_is_signed_with_the_rest(pair: Pair) -> None:
    sealed = pair.agent.seal(HELLO)
    assert open_envelope(sealed, pair.applicant.key.public).farm == pair.agent.farm.ids
    forged = sealed.replace(pair.agent.farm.ids[0], "0" * 16)
    with pytest.raises(ValueError, match="signature is wrong"):
        open_envelope(forged, pair.applicant.key.public)
    assert read_keys(keys_message([pair.enrolled])) == (pair.enrolled,)


def test_the_former_key_ends_by_itself_and_both_files_are_for_their_user_alone(tmp_path: Path) -> None:
    old = farm_key(tmp_path)
    made = farm_key_rotation.rotate(tmp_path, NOW, LATER)
    former = tmp_path / "farm.key.former"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "farm.key", former)] == [0o600, 0o600]
    assert (
        farm_key_rotation.read(tmp_path, NOW).ids
        == made.ids
        == (made.current.public.key_id, old.public.key_id)
    )
    with pytest.raises(UsageError, match="still good until 2026-01-01 01:00 UTC"):
        farm_key_rotation.rotate(tmp_path, NOW, LATER)
    assert farm_key_rotation.read(tmp_path, LATER).ids == (made.current.public.key_id,)
    assert not former.exists()
    with pytest.raises(UsageError, match="has one key"):
        farm_key_rotation.retire(tmp_path, LATER)


def test_a_rotation_that_was_cut_off_halfway_leaves_the_key_of_before(tmp_path: Path) -> None:
    old = farm_key(tmp_path)
    farm_key_rotation.rotate(tmp_path, NOW, LATER)
    (tmp_path / "farm.key").write_text(old.secret())
    assert farm_key_rotation.read(tmp_path, NOW).ids == (old.public.key_id,)


def test_a_former_key_that_others_can_read_or_that_is_none_is_named(tmp_path: Path) -> None:
    farm_key_rotation.rotate(tmp_path, NOW, LATER)
    path = tmp_path / "farm.key.former"
    path.chmod(0o644)
    with pytest.raises(FarmError, match="chmod 600"):
        farm_key_rotation.read(tmp_path, NOW)
    path.chmod(0o600)
    path.write_text("[]")
    with pytest.raises(FarmError, match="is not a former key"):
        farm_key_rotation.read(tmp_path, NOW)
    path.unlink()
    path.mkdir(0o700)
    with pytest.raises(FarmError, match="cannot be used: Is a directory"):
        farm_key_rotation.read(tmp_path, NOW)


def test_a_running_farm_goes_on_with_the_keys_that_it_has_where_the_files_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(farm_key_rotation, "REFRESH_S", 0.0)
    keys = FarmKeyFolder(tmp_path)
    before = keys.keys().ids
    (tmp_path / "farm.key").write_text("nonsense")
    assert keys.keys().ids == before
    assert "continues with the keys that it has" in caplog.text


def test_a_retired_key_is_gone_from_the_folder(tmp_path: Path) -> None:
    new = farm_key_rotation.rotate(tmp_path, NOW, LATER).current.public.key_id
    assert (farm_key_rotation.retire(tmp_path, NOW).ids, farm_key_rotation.read(tmp_path, NOW).ids) == (
        (new,),
        (new,),
    )


def test_a_folder_that_takes_no_changes_keeps_its_keys_and_is_named(tmp_path: Path) -> None:
    farm_key(tmp_path)
    with (
        in_a_folder_of_another(tmp_path),
        pytest.raises(FarmError, match="cannot take a new key: Permission denied"),
    ):
        farm_key_rotation.rotate(Path(), NOW, LATER)
    ids = farm_key_rotation.rotate(tmp_path, NOW, LATER).ids
    with (
        in_a_folder_of_another(tmp_path),
        pytest.raises(FarmError, match=r"farm\.key\.former cannot be deleted: Permission denied"),
    ):
        farm_key_rotation.retire(Path(), NOW)
    assert farm_key_rotation.read(tmp_path, NOW).ids == ids


@contextmanager
def in_a_folder_of_another(folder: Path) -> Iterator[None]:
    """Work in a folder in which this user cannot create or delete, as the owner of its files."""
    me = os.geteuid()
    with chdir(folder):
        for path in folder.iterdir():
            os.chown(path, me or NOBODY, -1)
        folder.chmod(0o755 if me == 0 else 0o500)
        os.seteuid(me or NOBODY)
        try:
            yield
        finally:
            os.seteuid(me)
            folder.chmod(0o700)
            for path in folder.iterdir():
                os.chown(path, me, -1)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[TrustedLab]:
    with trusted_lab(tmp_path, needs.redis_server(), tls=True) as made:
        yield made


@pytest.mark.conformance
def test_a_lab_changes_its_key_while_it_measures_and_no_attempt_is_lost(lab: TrustedLab) -> None:
    token = lab.farm("lab", "agents", "enrol", "rack-2")["token"]
    submitting = lab.begin(seconds=8.0)
    old = farm_key(FarmHome(lab.home).keys)
    new, former = lab.farm("lab", "keys", "rotate", "--overlap", "60")
    assert (former["key"], former["state"], new["state"]) == (old.public.key_id, "former", "current")
    told = f"the farm's keys are now, the newest first: {new['key']}, {old.public.key_id}"
    lab.until(lambda: told in lab.link_log(), "the agent learns of the new key")
    lab.until(lambda: "agent rack-1 trusts the farm's keys" in lab.serve.tail(), "the farm knows that")
    assert submitting.end() == 0, submitting.tail()
    lab.measure()

    second = lab.start_agent(
        lab.folder / "second", FARM_ENROL_TOKEN=token, FARM_SERVER=lab.environment["FARM_ENDPOINT"]
    )
    second.until(lambda: lab.is_active("rack-2"), "a token of before enrols still")
    lab.farm("lab", "agents", "remove", "rack-2")
    assert second.end() == 0

    assert [key["key"] for key in lab.farm("lab", "keys", "retire")] == [new["key"]]
    lab.until(lambda: lab.link_log().strip().endswith(f"newest first: {new['key']}"), "one key is left")
    lab.measure()
    assert lab.attempts() == [(1, "done")] * 3, "each cell ran once, at its first attempt"
    assert "is dropped" not in lab.link_log()


def test_a_key_is_found_by_its_own_id_alone() -> None:
    current, former = SigningKey.new(), SigningKey.new()
    keys = FarmKeys(current, former, LATER)
    assert keys.named(current.public.key_id) == current.public
    assert keys.named(former.public.key_id) == former.public
    assert keys.named(SigningKey.new().public.key_id) is None
    assert FarmKeys(current).named(former.public.key_id) is None
