"""Where the farm answers over HTTP: the URL that agents use, the address that is listened on, TLS, tokens."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import UsageError

DEFAULT_PORT: Final = 8460
LEAST_TOKEN: Final = 32

KEYS: Final = ("endpoint", "listen", "tls_cert", "tls_key", "tls_ca", "read_token", "submit_token")
"""What a `farm.toml` may say of it; `FARM_<NAME>` in the environment."""


@dataclass(frozen=True, slots=True)
class Address:
    """`url`: how agents reach it. `host`, `port`: what is listened on. `certificate` and `key`: PEM files.

    `behind_proxy`: something else may speak TLS at `url`.
    `authority`: PEM file of the CA that agents are to trust, None: their system's. `read_token` opens the
    results to readers, `submit_token` the store to who submits from other machines; None: to nobody.
    """

    url: str
    host: str
    port: int
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    read_token: str | None = field(default=None, repr=False)
    submit_token: str | None = field(default=None, repr=False)
    behind_proxy: bool = False

    @property
    def is_open(self) -> bool:
        """Whether tokens would cross a network in the clear."""
        return self.url.startswith("http:") and not is_loopback(self.host)

    @classmethod
    def read(cls, said: Mapping[str, str]) -> Address | None:
        """From the values of `KEYS`; None without `endpoint` and `listen`. Raises `UsageError`."""
        listen, url = said.get("listen"), said.get("endpoint")
        if url is None and listen is None:
            return None
        host, port, scheme = _from_url(url) if url else _from_listen(str(listen), "tls_cert" in said)
        if listen:
            bound_host, bound_port = _host_and_port(listen)
        else:
            bound_host, bound_port = host, port
        certificate, key = _pair(said)
        if scheme == "http" and certificate is not None:
            raise UsageError("FARM_TLS_CERT is set, but FARM_ENDPOINT is http; say https")
        return cls(
            url=f"{scheme}://{_bracketed(host)}:{port}",
            host=bound_host,
            port=bound_port,
            certificate=certificate,
            key=key,
            authority=Path(said["tls_ca"]).expanduser() if "tls_ca" in said else None,
            read_token=_token("read_token", said),
            submit_token=_token("submit_token", said),
            behind_proxy=listen is not None,
        )

    def require_certificate(self) -> None:
        """For the process that answers there. Raises `UsageError`."""
        if self.url.startswith("https:") and self.certificate is None and not self.behind_proxy:
            raise UsageError(
                "FARM_ENDPOINT is https, but there is no certificate; set FARM_TLS_CERT and FARM_TLS_KEY, "
                "or FARM_LISTEN where a proxy in front of the farm speaks TLS"
            )

    def authority_text(self) -> str | None:
        """The CA as PEM, for an agent that enrols. Raises `UsageError` where the file cannot be used."""
        if self.authority is None:
            return None
        try:
            text = self.authority.read_text()
            ssl.create_default_context(cadata=text)
        except (OSError, ValueError) as error:
            raise UsageError(f"FARM_TLS_CA: {self.authority}: no certificate in PEM: {error}") from error
        return text


def is_loopback(host: str) -> bool:
    """Whether an address never leaves this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_url(url: str) -> tuple[str, int, str]:
    example = "e.g. https://lab.example.org:8460"
    try:
        found = urlsplit(url)
        port = found.port
    except ValueError as error:
        raise UsageError(f"FARM_ENDPOINT is no URL: {error}; {example}") from error
    if found.scheme not in ("http", "https") or not found.hostname:
        raise UsageError(f"FARM_ENDPOINT is no http or https URL; {example}")
    if found.path not in ("", "/") or found.query or found.fragment or found.username is not None:
        raise UsageError(f"FARM_ENDPOINT has a host and a port and nothing else; {example}")
    return found.hostname, port or DEFAULT_PORT, found.scheme


def _from_listen(listen: str, tls: bool) -> tuple[str, int, str]:
    host, port = _host_and_port(listen)
    if host in ("0.0.0.0", "::"):  # noqa: S104  # it is refused
        raise UsageError(
            f"FARM_LISTEN is {listen}, which tells agents no address; "
            f"set FARM_ENDPOINT to the URL that they use, e.g. https://lab.example.org:{port}"
        )
    return host, port, "https" if tls else "http"


def _host_and_port(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not int(port) < 1 << 16:
        raise UsageError(f"FARM_LISTEN: {listen!r} is no HOST:PORT; e.g. 0.0.0.0:{DEFAULT_PORT}")
    return host, int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _pair(said: Mapping[str, str]) -> tuple[Path | None, Path | None]:
    found = [Path(said[name]).expanduser() if name in said else None for name in ("tls_cert", "tls_key")]
    if (found[0] is None) != (found[1] is None):
        raise UsageError("FARM_TLS_CERT and FARM_TLS_KEY go together; one is set and the other is not")
    return found[0], found[1]


def _token(name: str, texts: Mapping[str, str]) -> str | None:
    said = texts.get(name)
    if said is not None and (len(said) < LEAST_TOKEN or not said.isascii() or not said.isprintable()):
        raise UsageError(
            f"FARM_{name.upper()} is shorter than {LEAST_TOKEN} characters, or not plain ASCII; "
            "make one with: openssl rand -hex 32"
        )
    return said
