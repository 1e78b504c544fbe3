"""An agent's cache keeps some models and evicts others."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.link.cache import DEFAULT_BUDGET_BYTES, Cache, Evictable, budget_from, to_evict
from agent.wire.messages import artifact_path

files = st.lists(
    st.builds(
        Evictable,
        sha256=st.text("abc", min_size=3, max_size=3),
        size_bytes=st.integers(0, 50),
        used_at=st.floats(0, 100),
    ),
    max_size=12,
    unique_by=lambda file: file.sha256,
)


@given(
    files,
    st.sets(st.text("abc", min_size=3, max_size=3), max_size=5),
    st.integers(0, 80),
    st.integers(0, 200),
)
def test_eviction_spares_what_is_in_use_and_goes_no_further_than_needed(kept, in_use, more, budget):
    gone = to_evict(kept, in_use, more, budget, fresh_after=90)
    by_name = {file.sha256: file for file in kept}
    left = sum(file.size_bytes for file in kept if file.sha256 not in gone)
    assert not set(gone) & in_use
    assert all(by_name[name].used_at < 90 for name in gone)
    free_to_go = [f for f in kept if f.sha256 not in in_use and f.used_at < 90]
    assert left + more <= budget or set(gone) == {f.sha256 for f in free_to_go}
    if gone:
        assert left + by_name[gone[-1]].size_bytes + more > budget
        oldest_kept = min((f.used_at for f in free_to_go if f.sha256 not in gone), default=1e9)
        assert max(by_name[name].used_at for name in gone) <= oldest_kept


def admitted(cache: Cache, content: bytes, age_s: float = 0.0) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    with cache.room_for(sha256, len(content)):
        grown = cache.incoming(sha256)
        grown.write_bytes(content)
        cache.admit(sha256, grown)
    mark = cache.root / "fetched" / sha256
    then = time.time() - age_s
    os.utime(mark, (then, then))
    return sha256


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "store", 100, frozenset, fresh_s=10)


def test_the_model_used_longest_ago_goes_first(cache: Cache) -> None:
    a, b = admitted(cache, b"a" * 40, 300), admitted(cache, b"b" * 40, 200)
    assert cache.knows(a, 40)
    c = admitted(cache, b"c" * 40)
    assert [cache.verify(name, 40) for name in (a, b, c)] == [True, False, True]


def test_samples_that_wait_for_their_upload_are_never_evicted(cache: Cache) -> None:
    own = artifact_path(cache.root, "5" * 64)
    own.parent.mkdir(parents=True)
    own.write_bytes(b"s" * 90)
    admitted(cache, b"a" * 60, 300)
    admitted(cache, b"b" * 60)
    assert own.exists()


def test_a_model_that_a_job_or_a_runner_uses_stays_and_the_figures_are_told(tmp_path: Path) -> None:
    running: set[str] = set()
    cache = Cache(tmp_path / "store", 100, lambda: running, fresh_s=0)
    running.add(admitted(cache, b"a" * 40, 300))
    held = admitted(cache, b"b" * 40, 300)
    cache.held["attempt"] = frozenset([held])
    with (
        pytest.raises(OSError, match="holds 80 that are in use, and 40 more do not fit"),
        cache.room_for("c" * 64, 40),
    ):
        pass
    del cache.held["attempt"]
    with cache.room_for("c" * 64, 40):
        assert not cache.verify(held, 40)
        with pytest.raises(OSError, match="do not fit"), cache.room_for("d" * 64, 40):
            pass


@pytest.mark.parametrize("folder", ["fetched", "incoming"])
def test_a_file_that_another_thread_takes_away_meanwhile_hinders_no_fetch(cache, monkeypatch, folder):
    part = cache.incoming(admitted(cache, b"a" * 40))
    part.write_bytes(b"a")
    stat = Path.stat

    def stat_late(path: Path, **how: bool) -> os.stat_result:
        if path.parent == cache.root / folder:
            cache.discard(path.name) if folder == "fetched" else cache.admit(path.name, path)
        return stat(path, **how)

    monkeypatch.setattr(Path, "stat", stat_late)
    with cache.room_for("c" * 64, 40):
        assert not (cache.root / folder / part.name).exists()


def test_a_changed_file_is_no_longer_known_and_is_deleted(cache: Cache) -> None:
    a = admitted(cache, b"a" * 40)
    path = artifact_path(cache.root, a)
    path.chmod(0o644)
    path.write_bytes(b"x" * 40)
    assert not cache.knows(a, 40)
    assert not cache.verify(a, 40)
    assert not path.exists()


def test_a_doubted_file_is_hashed_again(cache: Cache) -> None:
    a = admitted(cache, b"a" * 40)
    assert cache.knows(a, 40)
    cache.doubt(a)
    assert not cache.knows(a, 40)
    assert cache.verify(a, 40)
    assert cache.knows(a, 40)


def test_a_link_in_the_cache_is_no_model(cache: Cache, tmp_path: Path) -> None:
    a = admitted(cache, b"a" * 40)
    path = artifact_path(cache.root, a)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert not cache.knows(a, 40)
    assert not cache.verify(a, 40)


def test_only_a_sha256_names_a_file(cache: Cache) -> None:
    with pytest.raises(ValueError, match="not a sha256"):
        cache.incoming("../../x")


def test_a_file_that_was_used_just_as_long_ago_as_is_fresh_stays():
    files = [Evictable("a", 10, used_at=90.0), Evictable("b", 10, used_at=89.9)]
    assert to_evict(files, set(), 20, 20, fresh_after=90.0) == ["b"]


def test_a_known_file_of_another_size_than_the_job_names_is_not_that_model(tmp_path):
    cache = Cache(tmp_path, 1000, set)
    sha256 = admitted(cache, b"x" * 300)
    assert cache.knows(sha256, 300)
    assert not cache.knows(sha256, 299)
    assert not cache.verify(sha256, 299)
    assert not artifact_path(tmp_path, sha256).exists()
    assert not (tmp_path / "fetched" / sha256).exists()


def test_a_file_that_is_hashed_counts_as_used_and_one_that_is_gone_is_forgotten(tmp_path):
    cache = Cache(tmp_path, 1000, set)
    sha256 = admitted(cache, b"x" * 300, age_s=1000.0)
    assert cache.verify(sha256, 300)
    assert time.time() - (tmp_path / "fetched" / sha256).stat().st_mtime < 500
    artifact_path(tmp_path, sha256).unlink()
    assert not cache.verify(sha256, 300)
    assert not (tmp_path / "fetched" / sha256).exists()


def test_a_discarded_file_that_comes_back_is_hashed_before_it_is_used(tmp_path):
    cache = Cache(tmp_path, 1000, set)
    sha256 = admitted(cache, b"x" * 300)
    path = artifact_path(tmp_path, sha256)
    former = path.stat()
    os.link(path, tmp_path / "kept")
    cache.discard(sha256)
    os.link(tmp_path / "kept", path)
    path.chmod(0o600)
    path.write_bytes(b"y" * 300)
    os.utime(path, ns=(former.st_atime_ns, former.st_mtime_ns))
    assert not cache.knows(sha256, 300)


@pytest.mark.parametrize("text", ["0", "1.5", "-3", "many", "1e9"])
def test_a_budget_is_a_number_of_bytes_above_nothing(text):
    with pytest.raises(ValueError, match="FARM_AGENT_CACHE_BYTES"):
        budget_from({"FARM_AGENT_CACHE_BYTES": text})


@pytest.mark.parametrize(("text", "found"), [("", DEFAULT_BUDGET_BYTES), ("1", 1), ("70", 70)])
def test_a_budget_is_what_was_set_or_the_default(text, found):
    assert budget_from({"FARM_AGENT_CACHE_BYTES": text}) == found
    assert budget_from({}) == DEFAULT_BUDGET_BYTES
