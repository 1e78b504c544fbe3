"""`https:` and `npm:` sources against a real HTTPS server: verified, capped, and never led astray."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import ipaddress
import json
import os
import socket
import tarfile
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.config.home import FarmHome
from orchestrator.config.lab import LabConfig
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.manifest.campaign import ModelEntry
from orchestrator.manifest.load import load_manifest
from orchestrator.manifest.problems import ManifestError
from orchestrator.sources import web
from orchestrator.sources.resolve import StoredModel, check_all, resolve_all
from orchestrator.sources.store import Store
from orchestrator.sources.web import DOWNLOAD_LIMIT_S, Web, is_public, parse_url, resolved
from tests.services.https_server import Answer, HttpsServer

MODEL = b"\x1c\x00\x00\x00TFL3" + bytes(range(256)) * 40
SHA = hashlib.sha256(MODEL).hexdigest()
SOURCE = "npm:@scope/face-models@1.2.3!models/face.tflite"
LISTING = "/@scope%2Fface-models/1.2.3"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", max_bytes=100_000)


def fetch(
    server: HttpsServer, store: Store, source: str, sha256: str | None = None, **web: object
) -> StoredModel:
    chosen = Web(**{"allow_private": True, "registry": server.url} | web)  # type: ignore[arg-type]
    return resolve_all(check_all([ModelEntry("m", source, sha256=sha256)], Path()), store, web=chosen)[0]


def test_a_model_comes_over_https(server: HttpsServer, store: Store) -> None:
    server.pages["/a/m.tflite?v=1"] = Answer(MODEL)
    model = fetch(server, store, f"{server.url}/a/m.tflite?v=1")
    assert (model.sha256, model.size_bytes) == (SHA, len(MODEL))
    assert store.path(SHA).read_bytes() == MODEL


def test_a_pinned_model_is_fetched_once_and_must_be_that_model(server: HttpsServer, store: Store) -> None:
    url = f"{server.url}/m.tflite"
    server.pages["/m.tflite"] = Answer(MODEL)
    with pytest.raises(UsageError, match="wrong sha256"):
        fetch(server, store, url, "0" * 64)
    assert store.find(SHA) is None
    for _ in range(2):
        assert fetch(server, store, url, SHA).sha256 == SHA
    assert server.asked == ["/m.tflite"] * 2


def test_redirects_are_followed_a_few_times_and_stay_on_https(server: HttpsServer, store: Store) -> None:
    for number in range(7):
        server.pages[f"/{number}"] = Answer(status=302, headers={"location": f"/{number + 1}"})
    server.pages["/7"] = Answer(MODEL)
    assert fetch(server, store, f"{server.url}/2").sha256 == SHA
    with pytest.raises(UsageError, match="more than 5 redirects"):
        fetch(server, store, f"{server.url}/1")
    for place in ("http://localhost/m", "file:///etc/passwd", "ftp://localhost/m"):
        server.pages["/away"] = Answer(status=301, headers={"location": place})
        with pytest.raises(UsageError, match="expected https://"):
            fetch(server, store, f"{server.url}/away")


@pytest.mark.parametrize(
    "answer",
    [Answer(b"x" * 100_001), Answer(b"x" * 100_001, length=-1), Answer(b"", length=1 << 40)],
    ids=["honest", "without_a_length", "announced"],
)
def test_what_is_larger_than_the_store_takes_is_refused(
    server: HttpsServer, store: Store, answer: Answer
) -> None:
    server.pages["/m"] = answer
    with pytest.raises(UsageError, match="larger than 100000 bytes"):
        fetch(server, store, f"{server.url}/m")
    assert not list(store.root.glob("sha256/*/*"))


def test_a_broken_transfer_stores_nothing(server: HttpsServer, store: Store) -> None:
    server.pages["/m"] = Answer(MODEL[:500], length=len(MODEL), headers={"connection": "close"})
    with pytest.raises(UnreachableError, match="try again"):
        fetch(server, store, f"{server.url}/m")
    assert not list(store.root.glob("sha256/*/*"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(status=404), "answers 404"),
        (Answer(status=500), "answers 500"),
        (Answer(status=302), "redirects"),
        (Answer(gzip.compress(MODEL), headers={"content-encoding": "gzip"}), "gzip-encoded"),
    ],
)
def test_answers_that_bring_no_model_are_named(
    server: HttpsServer, store: Store, answer: Answer, words: str
) -> None:
    server.pages["/m"] = answer
    with pytest.raises(UsageError, match=words):
        fetch(server, store, f"{server.url}/m")


def test_a_private_address_is_refused_unless_it_is_allowed(server: HttpsServer, store: Store) -> None:
    server.pages["/m"] = Answer(MODEL)
    with pytest.raises(
        UsageError, match=r"localhost is (127\.0\.0\.1|::1), which is not a public address.*FARM_ALLOW"
    ):
        fetch(server, store, f"{server.url}/m", allow_private=False)
    for host in (
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "169.254.169.254",
        "10.0.0.1",
        "[fe80::1]",
    ):
        with pytest.raises(FarmError, match=r"not a public address|cannot be found"):
            fetch(server, store, f"https://{host}/m", allow_private=False)
    assert server.asked == []


def test_a_redirect_to_a_private_address_is_refused_too(
    server: HttpsServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages["/m"] = Answer(status=302, headers={"location": "https://10.0.0.1/secret"})
    monkeypatch.setattr(
        "orchestrator.sources.web.is_public", lambda address: address.is_loopback or is_public(address)
    )
    with pytest.raises(UsageError, match=r"10\.0\.0\.1, which is not a public address"):
        fetch(server, store, f"{server.url}/m", allow_private=False)
    assert server.asked == ["/m"]


def test_a_name_server_that_changes_its_mind_changes_nothing(
    server: HttpsServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is asked for once; the connection goes to the address that was checked."""
    server.pages["/m"] = Answer(MODEL)
    answers = iter(["192.0.2.1", "127.0.0.1"])
    real = socket.getaddrinfo

    def rebinding(host, *rest, **more):
        return real(next(answers) if host == "localhost" else host, *rest, **more)

    connected = []

    def refuse(address, *_, **__):
        connected.append(address[0])
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("orchestrator.sources.web.is_public", lambda address: not address.is_loopback)
    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", refuse)
    with pytest.raises(UnreachableError, match="Connection refused"):
        fetch(server, store, f"{server.url}/m", allow_private=False)
    assert connected == ["192.0.2.1"]
    with pytest.raises(UsageError, match="not a public address"):
        fetch(server, store, f"{server.url}/m", allow_private=False)


def test_one_private_address_among_public_ones_is_enough_to_refuse(
    server: HttpsServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 443)) for host in ("8.8.8.8", "192.168.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: entries)
    with pytest.raises(UsageError, match=r"192\.168\.0\.1, which is not a public"):
        fetch(server, store, f"{server.url}/m", allow_private=False)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("8.8.8.8", True), ("2001:4860:4860::8888", True), ("64:ff9b::808:808", True),
        ("10.1.2.3", False), ("172.16.0.1", False), ("192.168.1.1", False), ("127.0.0.53", False),
        ("169.254.169.254", False), ("100.64.0.1", False), ("0.0.0.0", False), ("224.0.0.1", False),
        ("255.255.255.255", False), ("::", False), ("::1", False), ("fe80::1", False), ("fc00::1", False),
        ("fec0::1", False), ("ff02::1", False), ("::ffff:10.0.0.1", False), ("64:ff9b::a00:1", False),
        ("2002:a00:1::", False), ("192.0.2.1", False),
        ("1.1.1.1", True), ("2606:4700:4700::1111", True), ("::ffff:8.8.8.8", True), ("192.0.0.9", False),
        ("0.1.2.3", False), ("100.127.255.255", False), ("100.128.0.1", True), ("172.32.0.1", True),
        ("192.0.0.1", False), ("192.0.0.170", False), ("192.88.99.1", False), ("198.18.0.1", False),
        ("198.51.100.7", False), ("203.0.113.9", False), ("240.0.0.1", False), ("239.255.255.250", False),
        ("::127.0.0.1", False), ("::10.0.0.1", False), ("::8.8.8.8", False), ("::ffff:127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False), ("::ffff:100.64.0.1", False), ("64:ff9b::7f00:1", False),
        ("64:ff9b::a9fe:a9fe", False), ("64:ff9b:1::808:808", False), ("64:ff9b:1::7f00:1", False),
        ("2002:7f00:1::", False), ("2002:a9fe:a9fe::1", False), ("2002:808:808::1", False),
        ("2001:0:808:808::f5ff:fffe", False), ("2001:0:4136:e378:8000:63bf:807f:fffe", False),
        ("2001:db8::1", False), ("2001:2::1", False), ("2001:10::1", False), ("2001:20::1", False),
        ("3fff::1", False), ("5f00::1", False), ("100::1", False), ("100:0:0:1::1", False),
        ("4000::1", False), ("fd00:ec2::254", False), ("fec0:0:0:ffff::1", False),
        ("ff0e::1", False), ("fe80::1%eth0", False),
    ],
)  # fmt: skip
def test_public_addresses_are_told_from_private_ones(text: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(text)) is public


def test_an_unknown_certificate_is_not_trusted(
    server: HttpsServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    server.pages["/m"] = Answer(MODEL)
    with pytest.raises(FarmError, match="certificate cannot be trusted"):
        fetch(server, store, f"{server.url}/m")


def test_a_certificate_of_another_name_is_not_trusted(server: HttpsServer, store: Store) -> None:
    server.pages["/m"] = Answer(MODEL)
    with pytest.raises(FarmError, match="certificate cannot be trusted"):
        fetch(server, store, f"{server.url.replace('localhost', '127.0.0.1')}/m")


def test_forms_are_checked_at_their_place_before_anything_is_fetched(tmp_path: Path) -> None:
    bad = [
        "https:", "https:///x", "https://user:secret@host/m", "https://host:99999/m", "https://ho st/m",
        "npm:left-pad!m", "npm:left-pad@^1.0.0!m", "npm:left-pad@1.0.0", "npm:../x@1.0.0!m", "npm:A@1.0.0!m",
        "npm:@scope@1.0.0!m", "npm:a@1.0!m",
    ]  # fmt: skip
    lines = "".join(f"  - {{id: m{i}, source: {json.dumps(source)}}}\n" for i, source in enumerate(bad))
    file = tmp_path / "models.yaml"
    file.write_text(f"version: 1\ncampaign: c\nmodels:\n{lines}delegates:\n  cpu: {{kind: cpu}}\n")
    campaign = load_manifest(file)
    with pytest.raises(ManifestError) as caught:
        check_all(campaign.models, tmp_path, str(file))
    for number in range(len(bad)):
        assert f"models.yaml:{number + 4}:" in str(caught.value)
    assert "secret" not in str(caught.value).replace("https://user:secret@host/m", "")


def packed(members: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for entry in more:
            archive.addfile(entry)
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def publish(server: HttpsServer, archive: bytes, **dist: str) -> None:
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    found = {"tarball": f"{server.url}/f.tgz", "integrity": integrity} | dist
    server.pages[LISTING] = Answer(json.dumps({"name": "x", "dist": found}).encode())
    server.pages["/f.tgz"] = Answer(archive)


def test_a_member_of_a_package_is_stored_and_the_package_is_fetched_once(
    server: HttpsServer, store: Store
) -> None:
    publish(server, packed({"package/package.json": b"{}", "package/models/face.tflite": MODEL}))
    assert fetch(server, store, SOURCE).sha256 == SHA
    assert fetch(server, store, SOURCE).sha256 == SHA
    with pytest.raises(UsageError, match="wrong sha256"):
        fetch(server, store, SOURCE, "0" * 64)
    assert server.asked == [LISTING, "/f.tgz"]


def test_two_members_of_one_package_share_its_download(server: HttpsServer, store: Store) -> None:
    publish(server, packed({"package/models/face.tflite": MODEL, "package/models/hand.tflite": MODEL[:-1]}))
    entries = [ModelEntry("a", SOURCE), ModelEntry("b", SOURCE.replace("face.tflite", "hand.tflite"))]
    a, b = resolve_all(check_all(entries, Path()), store, web=Web(True, server.url))
    assert (a.size_bytes, b.size_bytes) == (len(MODEL), len(MODEL) - 1)
    assert server.asked.count("/f.tgz") == 1


def test_an_archive_that_is_not_what_the_registry_says_is_refused(server: HttpsServer, store: Store) -> None:
    archive = packed({"package/models/face.tflite": MODEL})
    publish(server, archive)
    server.pages["/f.tgz"] = Answer(archive[:-9] + bytes([archive[-9] ^ 1]) + archive[-8:])
    with pytest.raises(UsageError, match="does not have the sha512 that the registry names"):
        fetch(server, store, SOURCE)
    assert store.find(SHA) is None


@pytest.mark.parametrize(
    ("dist", "words"),
    [
        ({"integrity": "sha1-AAAA"}, "no sha512"),
        ({"integrity": "sha512-!!"}, "is not base64"),
        ({"tarball": "http://localhost/f.tgz"}, "expected https://"),
        ({"tarball": "file:///etc/passwd"}, "expected https://"),
    ],
)
def test_a_registry_that_gives_no_safe_answer_is_refused(
    server: HttpsServer, store: Store, dist: dict[str, str], words: str
) -> None:
    publish(server, packed({"package/models/face.tflite": MODEL}), **dist)
    with pytest.raises(UsageError, match=words):
        fetch(server, store, SOURCE)


@pytest.mark.parametrize("listing", [b"", b"[]", b'{"dist": {}}', b'{"dist": 3}', b"[" * 100_000])
def test_nonsense_of_a_registry_is_said(server: HttpsServer, store: Store, listing: bytes) -> None:
    server.pages[LISTING] = Answer(listing)
    with pytest.raises(UsageError, match="names no archive"):
        fetch(server, store, SOURCE)


def test_a_version_that_is_not_there_is_said(server: HttpsServer, store: Store) -> None:
    with pytest.raises(UsageError, match=r"npm:@scope/face-models@1\.2\.3: the server answers 404"):
        fetch(server, store, SOURCE)


def test_a_missing_member_names_the_closest(server: HttpsServer, store: Store) -> None:
    publish(server, packed({"package/models/faces.tflite": MODEL}))
    with pytest.raises(UsageError, match=r"no such member.*models/faces\.tflite"):
        fetch(server, store, SOURCE)


def test_nothing_in_an_archive_names_a_path_that_is_written(
    server: HttpsServer, store: Store, tmp_path: Path
) -> None:
    link = tarfile.TarInfo("package/models/face.tflite")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    outside = {f"package/../../../../{tmp_path}/outside": MODEL, f"{tmp_path}/outside": MODEL}
    publish(server, packed(outside, link))
    with pytest.raises(UsageError, match="no such member"):
        fetch(server, store, SOURCE)
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_that_claim_to_be_huge_are_refused(server: HttpsServer, store: Store, kind: bytes) -> None:
    header = tarfile.TarInfo("package/x")
    header.type, header.size = kind, 1 << 30
    publish(server, gzip.compress(header.tobuf() + bytes(1 << 20)))
    with pytest.raises(UsageError, match="cannot be read: a header of 1073741824 bytes"):
        fetch(server, store, SOURCE)


@pytest.mark.parametrize(
    "archive",
    [b"", b"nonsense", gzip.compress(b"x" * 5000)[:-20], gzip.compress(b"y" * 5000)],
    ids=["empty", "not gzip", "cut off", "not tar"],
)
def test_a_damaged_archive_is_said(server: HttpsServer, store: Store, archive: bytes) -> None:
    publish(server, archive)
    with pytest.raises(UsageError, match=r"cannot be read|no such member"):
        fetch(server, store, SOURCE)


def test_an_archive_that_unpacks_to_far_more_than_a_model_is_given_up(
    server: HttpsServer, store: Store
) -> None:
    publish(server, packed({f"package/{i}": bytes(90_000) for i in range(20)}))
    with pytest.raises(UsageError, match="unpacks to more"):
        fetch(server, store, SOURCE)


def test_settings_say_what_may_be_reached(tmp_path: Path) -> None:
    home = FarmHome(tmp_path)
    assert not LabConfig.load(home, {}).allow_private
    chosen = LabConfig.load(home, {"FARM_ALLOW_PRIVATE": "1", "FARM_NPM_REGISTRY": "https://npm.lab/"})
    assert (chosen.allow_private, chosen.npm_registry) == (True, "https://npm.lab")
    (tmp_path / "farm.toml").write_text("allow_private = true\n")
    assert LabConfig.load(home, {}).allow_private
    assert not LabConfig.load(home, {"FARM_ALLOW_PRIVATE": "0"}).allow_private
    for wrong in ({"FARM_ALLOW_PRIVATE": "yes"}, {"FARM_NPM_REGISTRY": "http://npm.lab"}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            LabConfig.load(home, wrong)


def read_all(server: HttpsServer, most_bytes: int) -> bytes:
    with Web(allow_private=True).open(f"{server.url}/m", most_bytes, "the model") as body:
        return body.read_all()


@pytest.mark.parametrize("length", [None, -1], ids=["announced", "without_a_length"])
def test_a_download_may_have_just_as_many_bytes_as_are_allowed(
    server: HttpsServer, length: int | None
) -> None:
    server.pages["/m"] = Answer(MODEL) if length is None else Answer(MODEL, length=length)
    assert read_all(server, len(MODEL)) == MODEL
    with pytest.raises(UsageError, match="larger than"):
        read_all(server, len(MODEL) - 1)


def test_a_download_that_takes_too_long_ends_however_often_bytes_come(
    server: HttpsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages["/m"] = Answer(MODEL)
    now_s = [1000.0]
    with Web(allow_private=True).open(f"{server.url}/m", len(MODEL), "the model") as body:
        monkeypatch.setattr(web.time, "monotonic", lambda: now_s[0])
        assert body.read(1)
        now_s[0] += DOWNLOAD_LIMIT_S
        assert body.read(1)
        now_s[0] += 1.0
        with pytest.raises(UnreachableError, match="took longer"):
            body.read(1)


@pytest.mark.parametrize(
    "url",
    ["https://user@host/m", "https://:secret@host/m", "https://host:0/m", "https:///m", "http://host/m"],
)
def test_a_url_with_a_user_a_password_or_without_a_server_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="the model"):
        parse_url(url, "the model")


def test_every_other_port_is_a_port() -> None:
    assert parse_url("https://host:1/m", "the model").port == 1


def test_a_server_that_nobody_knows_is_said() -> None:
    with (
        pytest.raises(UnreachableError, match="cannot be found"),
        Web().open("https://no-such-host.invalid/m", 1, "the model"),
    ):
        pass


def test_a_host_that_no_name_server_could_be_asked_for_cannot_be_reached():
    with pytest.raises(OSError, match="label"):
        resolved(urlsplit(f"https://{'a' * 70}.example/model.tflite"))
