"""The farm's limits: the budget of the store, the floor under it, and the settings for both."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.config.address import Address
from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.config.limits import GIB, StoreLimits, require_budget, require_floor, size_text, used_bytes
from orchestrator.errors import FarmError, UsageError
from orchestrator.sources.store import Store


def load(tmp_path: Path, **environment: str) -> LabConfig:
    return LabConfig.load(
        FarmHome(tmp_path), {f"FARM_{name.upper()}": text for name, text in environment.items()}
    )


def test_a_store_that_has_used_its_budget_takes_nothing_new_and_says_the_figures(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(io.BytesIO(b"x" * 2000), "a")
    require_budget(tmp_path, StoreLimits(store_bytes=2001))
    with pytest.raises(FarmError, match=r"holds 2\.0 KiB, its budget is 1\.0 KiB.*farm db prune --keep 90d"):
        require_budget(tmp_path, StoreLimits(store_bytes=1024))
    assert used_bytes(tmp_path) == 2000


def test_a_file_that_goes_while_the_store_is_counted_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 10)
    scan = os.scandir

    @contextmanager
    def scandir(path: Path) -> Iterator[list[os.DirEntry[str]]]:
        with scan(path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        (tmp_path / "a").unlink()
        yield entries

    monkeypatch.setattr(os, "scandir", scandir)
    assert used_bytes(tmp_path) == 20


def test_the_floor_of_free_space_is_kept(tmp_path: Path) -> None:
    require_floor(tmp_path, StoreLimits(free_bytes=1))
    for limits, more in ((StoreLimits(free_bytes=1 << 55), 0), (StoreLimits(free_bytes=1), 1 << 55)):
        with pytest.raises(FarmError, match="are free for the store"):
            require_floor(tmp_path, limits, more)
    assert StoreLimits().floor_bytes(100 * GIB) == GIB
    assert StoreLimits().floor_bytes(64 << 20) == (64 << 20) // 50
    assert StoreLimits(free_bytes=7).floor_bytes(GIB) == 7


def test_limits_come_from_the_environment_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "farm.toml").write_text("[store]\nstore_bytes = 5000\nsamples_bytes = 10\n")
    found = load(tmp_path, samples_bytes="20").limits
    assert (found.store_bytes, found.samples_bytes) == (5000, 20)
    for wrong in ("0", "-5", "1e9", "x"):
        with pytest.raises(UsageError, match="FARM_STORE_BYTES"):
            load(tmp_path, store_bytes=wrong)
    for text, words in (
        ("[store]\nbytes = 5\n", "unknown key 'bytes'"),
        ("[store]\nfree_bytes = true\n", "free_bytes"),
    ):
        (tmp_path / "farm.toml").write_text(text)
        with pytest.raises(UsageError, match=words):
            load(tmp_path)


def test_sizes_are_written_in_the_largest_fitting_unit() -> None:
    assert [size_text(n) for n in (0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "0 bytes", "1023 bytes", "1.5 KiB", "5.0 MiB", "3072.0 GiB",
    ]  # fmt: skip


def test_the_address_of_the_farm_follows_from_its_settings(tmp_path: Path) -> None:
    assert load(tmp_path).address is None
    listening = load(tmp_path, listen="lab:9000").address
    assert listening == Address("http://lab:9000", "lab", 9000, behind_proxy=True)
    assert load(tmp_path, endpoint="http://lab").address == Address("http://lab:8460", "lab", 8460)
    behind = load(tmp_path, endpoint="https://lab.example:443", listen="[::1]:80").address
    assert behind == Address("https://lab.example:443", "::1", 80, behind_proxy=True)
    behind.require_certificate()
    own = load(tmp_path, endpoint="https://lab:1", tls_cert="/c", tls_key="/k", tls_ca="/a").address
    assert own == Address("https://lab:1", "lab", 1, Path("/c"), Path("/k"), Path("/a"))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"endpoint": "https://lab", "tls_cert": "/c"}, "go together"),
        ({"endpoint": "http://lab", "tls_cert": "/c", "tls_key": "/k"}, "begins with http; use https"),
        ({"endpoint": "ftp://lab"}, "not an http or https URL"),
        ({"endpoint": "http://lab:x"}, "is not a URL"),
        ({"endpoint": "http://lab/path"}, "nothing else"),
        ({"endpoint": "http://u:p@lab"}, "nothing else"),
        ({"listen": "lab"}, "is not HOST:PORT"),
        ({"listen": "0.0.0.0:1"}, "set FARM_ENDPOINT"),
        ({"listen": "[::]:1"}, "set FARM_ENDPOINT"),
        ({"listen": "lab:99999"}, "is not HOST:PORT"),
        ({"listen": "lab:1", "read_token": "short"}, "FARM_READ_TOKEN.*openssl rand"),
        ({"listen": "lab:1", "submit_token": "short"}, "FARM_SUBMIT_TOKEN.*openssl rand"),
    ],
)
def test_an_address_that_cannot_be_is_refused_in_one_line(
    tmp_path: Path, said: dict[str, str], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        load(tmp_path, **said)
    assert "short" not in str(caught.value).replace("is shorter", "")
    assert "u:p" not in str(caught.value)


def test_who_answers_needs_a_certificate_and_who_only_asks_does_not(tmp_path: Path) -> None:
    address = load(tmp_path, endpoint="https://lab").address
    assert address is not None
    with pytest.raises(UsageError, match="there is no certificate"):
        address.require_certificate()


def test_tokens_are_in_no_text_of_the_configuration(tmp_path: Path) -> None:
    for name in ("read_token", "submit_token"):
        assert "r" * 40 not in repr(load(tmp_path, listen="lab:1", **{name: "r" * 40}))


def test_the_authority_for_agents_is_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nonsense")
    address = load(tmp_path, listen="lab:1", tls_ca=str(tmp_path / "ca.pem")).address
    assert address is not None
    with pytest.raises(UsageError, match=r"FARM_TLS_CA.*not a certificate"):
        address.authority_text()
