"""Reads where the farm serves HTTP: the URL that agents use, the address it listens on, TLS, tokens."""

import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchestrator.errors import UsageError

DEFAULT_PORT: Final = 8460
"""Port of a URL that names none. Chosen: above 1023, so no privilege is needed."""

LEAST_TOKEN: Final = 32
"""Characters of a token, at least. 32 hexadecimal digits are 128 random bits, which cannot be guessed over
HTTP; `openssl rand -hex 32` makes 64.
"""

KEYS: Final = ("endpoint", "listen", "tls_cert", "tls_key", "tls_ca", "read_token", "submit_token")
"""Keys of `farm.toml` that describe the endpoint; `FARM_<NAME>` in the environment."""


@dataclass(frozen=True, slots=True)
class Address:
    """`url`: how agents reach the farm. `host`, `port`: where it listens. `certificate` and `key`: PEM files.

    `behind_proxy`: a proxy may terminate TLS at `url`. `authority`: PEM file of the CA that agents are to
    trust; None: the CAs of their system. `read_token` gives readers the results, `submit_token` lets other
    machines upload models; None: such requests are refused.
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
    def read(cls, given: Mapping[str, str]) -> "Address | None":
        """Build it from the values of `KEYS`; None without `endpoint` and `listen`. Raises `UsageError`."""
        listen, url = given.get("listen"), given.get("endpoint")
        if url is None and listen is None:
            return None
        host, port, scheme = _from_url(url) if url else _from_listen(str(listen), "tls_cert" in given)
        if listen:
            bound_host, bound_port = _host_and_port(listen)
        else:
            bound_host, bound_port = host, port
        certificate, key = _pair(given)
        if scheme == "http" and certificate is not None:
            raise UsageError("FARM_TLS_CERT is set, but FARM_ENDPOINT begins with http; use https")
        return cls(
            url=f"{scheme}://{_bracketed(host)}:{port}",
            host=bound_host,
            port=bound_port,
            certificate=certificate,
            key=key,
            authority=Path(given["tls_ca"]).expanduser() if "tls_ca" in given else None,
            read_token=_token("read_token", given),
            submit_token=_token("submit_token", given),
            behind_proxy=listen is not None,
        )

    @classmethod
    def of_user(cls, url: str, token: str, authority: str | None) -> "Address":
        """Return the endpoint as a user knows it: one token reads and submits. Raises `UsageError`."""
        host, port, scheme = _from_url(url, "FARM_URL")
        checked = _token("token", {"token": token})
        return cls(
            url=f"{scheme}://{_bracketed(host)}:{port}",
            host=host,
            port=port,
            authority=None if authority is None else Path(authority).expanduser(),
            read_token=checked,
            submit_token=checked,
        )

    def require_certificate(self) -> None:
        """Check that the serving process has a certificate if it needs one. Raises `UsageError`."""
        if self.url.startswith("https:") and self.certificate is None and not self.behind_proxy:
            raise UsageError(
                "FARM_ENDPOINT begins with https, but there is no certificate; "
                "set FARM_TLS_CERT and FARM_TLS_KEY, or FARM_LISTEN where a proxy terminates TLS"
            )

    def authority_text(self) -> str | None:
        """Return the CA as PEM, for an agent that enrols. Raises `UsageError` if the file cannot be used."""
        if self.authority is None:
            return None
        try:
            text = self.authority.read_text()
            # For its check alone: what is no certificate is noticed here, and not by the agent.
            ssl.create_default_context(cadata=text)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"FARM_TLS_CA: {self.authority} is not a certificate in PEM form: {error}"
            ) from error
        return text


def is_loopback(host: str) -> bool:
    """Whether an address never leaves this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_url(url: str, setting: str = "FARM_ENDPOINT") -> tuple[str, int, str]:
    example = "e.g. https://lab.example.org:8460"
    try:
        found = urlsplit(url)
        # Read within the `try`: it raises `ValueError` for a port that is not a number.
        port = found.port
    except ValueError as error:
        raise UsageError(f"{setting} is not a URL: {error}; {example}") from error
    if found.scheme not in ("http", "https") or not found.hostname:
        raise UsageError(f"{setting} is not an http or https URL; {example}")
    if found.path not in ("", "/") or found.query or found.fragment or found.username is not None:
        raise UsageError(f"{setting} must be a host and a port and nothing else; {example}")
    return found.hostname, port or DEFAULT_PORT, found.scheme


def _from_listen(listen: str, tls: bool) -> tuple[str, int, str]:
    host, port = _host_and_port(listen)
    if host in ("0.0.0.0", "::"):  # noqa: S104  # it is refused
        raise UsageError(
            f"FARM_LISTEN is {listen}, which is not an address that agents can reach; "
            f"set FARM_ENDPOINT to the URL that they use, e.g. https://lab.example.org:{port}"
        )
    return host, port, "https" if tls else "http"


def _host_and_port(listen: str) -> tuple[str, int]:
    # From the right, as an address of IPv6 has colons of its own.
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or not int(port) < 1 << 16:
        raise UsageError(f"FARM_LISTEN: {listen!r} is not HOST:PORT; e.g. 0.0.0.0:{DEFAULT_PORT}")
    return host, int(port)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _pair(given: Mapping[str, str]) -> tuple[Path | None, Path | None]:
    found = [Path(given[name]).expanduser() if name in given else None for name in ("tls_cert", "tls_key")]
    if (found[0] is None) != (found[1] is None):
        raise UsageError("FARM_TLS_CERT and FARM_TLS_KEY go together, but only one of them is set")
    return found[0], found[1]


def _token(name: str, texts: Mapping[str, str]) -> str | None:
    token = texts.get(name)
    if token is not None and (len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable()):
        raise UsageError(
            f"FARM_{name.upper()} is shorter than {LEAST_TOKEN} characters, or not plain ASCII; "
            "make one with: openssl rand -hex 32"
        )
    return token
