"""Attacks by what somebody is asked to submit: campaign files, their sources, the folder around them."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.attack.attacker import witness_is_heard
from tests.orchestrator.cli.models import unary_model
from tests.services.forks import run
from tests.services.https_server import Answer, HttpsServer

HEAD = "version: 1\ncampaign: stranger\ndelegates:\n  cpu: {kind: cpu}\nmodels:\n"
LIMIT_S = 60
"""No file holds up the one who submits it for longer; a mistake is found within seconds."""


@pytest.fixture
def stranger(lab, tmp_path):
    """Return a function that runs `farm` on the server, in a folder that somebody else filled."""

    def farm(*arguments: str, cwd: Path = tmp_path, **environment: str) -> subprocess.CompletedProcess[str]:
        return run("farm", *arguments, cwd=cwd, env=lab.environment | environment, timeout=LIMIT_S)

    return farm


def stored(lab) -> set[Path]:
    return {path for path in (lab.home / "store" / "sha256").rglob("*") if path.is_file()}


def make_files(folder: Path) -> None:
    """Write files that are no models, and paths to files that this user may not give away."""
    os.mkfifo(folder / "fifo")
    (folder / "folder.tflite").mkdir()
    (folder / "link.tflite").symlink_to("/etc/shadow")
    (folder / "loop.tflite").symlink_to("loop.tflite")
    with (folder / "sparse.tflite").open("wb") as sparse:
        sparse.truncate(3 << 40)
    (folder / "text.tflite").write_text("root:x:0:0\n")
    with socket.socket(socket.AF_UNIX) as named:
        named.bind(str(folder / "socket"))


FILES_ON_DISK = [
    "fifo",
    "folder.tflite",
    "link.tflite",
    "loop.tflite",
    "sparse.tflite",
    "text.tflite",
    "socket",
    "/etc/shadow",
    "/etc/passwd",
    "../" * 20 + "etc/shadow",
    "/proc/self/environ",
    "/proc/self/mem",
    "/proc/kcore",
    "/dev/zero",
    "/dev/urandom",
    "/dev/stdin",
    "/sys/kernel/notes",
    "ftp://127.0.0.1/m.tflite",
    "data:,TFL3",
]
FORMS = [
    "file:///etc/shadow",
    "http://127.0.0.1/m.tflite",
    "pypi:--index-url=https://127.0.0.1/!m.tflite",
]
"""Sources that are refused by their form, before any file is looked at."""


@pytest.mark.parametrize("kind", ["forms", "files"])
def test_sources_that_are_no_models(lab, stranger, tmp_path, kind):
    """Devices, links, pipes, other people's files, options for pip: each is refused in its own line."""
    chosen = FORMS if kind == "forms" else FILES_ON_DISK
    make_files(tmp_path)
    text = HEAD + "".join(f"  - {{id: m{n}, source: '{source}'}}\n" for n, source in enumerate(chosen))
    (tmp_path / "models.yaml").write_text(text)
    before, first = stored(lab), HEAD.count("\n") + 1
    told = stranger("submit", "models.yaml")
    assert told.returncode == 2, told.stdout + told.stderr
    silent = [source for n, source in enumerate(chosen) if f"models.yaml:{first + n}:" not in told.stderr]
    assert silent == [], told.stderr
    assert stored(lab) == before
    assert "root:" not in told.stdout + told.stderr


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
FILES = {
    "aliases": BOMB.encode(),
    "an alias in itself": b"version: 1\nmodels: &a\n  - *a\n",
    "a Python object": b"version: 1\ncampaign: !!python/object/apply:os.system ['touch owned']\n",
    "a tag": b"version: 1\ncampaign: !include /etc/shadow\n",
    "two megabytes": b"# " + b"x" * 2_000_000,
    "deep": b"[" * 10_000,
    "deep blocks": b"".join(b" " * n + b"a:\n" for n in range(2_000)),
    "many values": b"[" + b"x," * 400_000 + b"]",
    "NUL": b"version: 1\0\ncampaign: a\0b\n",
    "another encoding": "version: 1".encode("utf-16"),
    "bytes": bytes(range(256)) * 100,
    "a merge": b"version: 1\n<<: {campaign: x, '<<': {models: 1}}\n",
    "a number of a megabyte": b"version: " + b"9" * 900_000,
    "a date": b"version: 1\ncampaign: 99999-99-99\n",
    "many delegates": b"version: 1\ndelegates:\n  cpu: {kind: cpu, threads: [" + b"1," * 40_000 + b"1]}\n",
}
"""Campaign files that are hostile as files."""


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=() if form in ("aliases", "a Python object") else pytest.mark.attack)
        for form in FILES
    ],
)
def test_campaign_files(lab, stranger, tmp_path, form):
    """Refused in lines that name the file, in bounded time; nothing of it is carried out."""
    (tmp_path / "models.yaml").write_bytes(FILES[form])
    told = stranger("submit", "models.yaml")
    assert told.returncode == 2, told.stdout + told.stderr
    assert told.stderr.count("\n") < 200
    assert "Traceback" not in told.stderr
    assert "models.yaml" in told.stderr
    assert not list(tmp_path.rglob("owned*"))


MODULES = (
    "pip",
    "yaml",
    "numpy",
    "sqlite3",
    "json",
    "typer",
    "agent",
    "orchestrator",
    "runtime",
    "sitecustomize",
)


def test_a_folder_full_of_python(lab, stranger, tmp_path):
    """`farm` runs nothing of the folder that it is called in, however its files are named."""
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'a').write({name!r})\n")
    (tmp_path / "models.yaml").write_text(
        HEAD + "  - {id: m, source: 'pypi:ai-edge-litert==2.3.0!m.tflite'}\n"
    )
    told = stranger(
        "submit", "models.yaml", "--dry-run", PIP_RETRIES="0", PIP_INDEX_URL="https://127.0.0.1:1/"
    )
    assert told.returncode != 0
    assert "Traceback" not in told.stderr
    assert not (tmp_path / "owned").exists(), (tmp_path / "owned").read_text()


PRIVATE = [
    "localhost",
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0.0.0.0",
    "[::1]",
    "[::ffff:127.0.0.1]",
]
PRIVATE += ["[::127.0.0.1]", "[64:ff9b::7f00:1]", "169.254.169.254", "10.0.0.1", "[fe80::1]", "[fd00::1]"]


@pytest.mark.parametrize(
    "host", [pytest.param(host, marks=() if host == "localhost" else pytest.mark.attack) for host in PRIVATE]
)
def test_a_source_on_a_private_address(lab, stranger, tmp_path, host):
    """Refused before a connection is made: nobody is asked for anything."""
    assert lab.authority is not None
    server = HttpsServer(lab.authority.issue("localhost"))
    try:
        server.pages["/m.tflite"] = Answer(unary_model())
        port = server.url.rpartition(":")[2]
        (tmp_path / "models.yaml").write_text(
            HEAD + f"  - {{id: m, source: 'https://{host}:{port}/m.tflite'}}\n"
        )
        told = stranger("submit", "models.yaml", SSL_CERT_FILE=str(lab.authority.path), FARM_ALLOW_PRIVATE="")
        assert told.returncode == 2, told.stderr
        assert "not a public address" in told.stderr
        assert server.asked == []
    finally:
        server.close()


def test_the_lab_is_as_it_was(lab):
    """Nothing of this has reached anybody else."""
    witness_is_heard(lab)
