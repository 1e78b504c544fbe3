"""Downloads over `https:` from public addresses only, with limits on redirects, size and time.

A name is resolved once, all its addresses are checked, and the connection uses a checked address: a name
server that answers differently the next time changes nothing. No proxy is used.
"""

import http.client
import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urljoin, urlsplit

from orchestrator.config.lab import DEFAULT_REGISTRY
from orchestrator.errors import FarmError, UnreachableError, UsageError

MOST_REDIRECTS: Final = 5
"""Redirects that are followed. Chosen: download sites use two or three; more is a loop."""

TIMEOUT_S: Final = 30.0
"""Seconds that one connect or one read may take. Chosen: a server that is silent for longer is down."""

DOWNLOAD_LIMIT_S: Final = 1800.0
"""Seconds that a whole download may take. Chosen: 2 GiB at 10 Mbit/s; a server that sends a byte now and
then would otherwise hold the submission for ever.
"""

BLOCK_BYTES: Final = 1 << 20
"""Bytes of one read of a download, at most."""

_REDIRECTS = (301, 302, 303, 307, 308)
"""Status codes of RFC 9110 that name another address in `Location`."""
_TRANSLATED = ipaddress.ip_network("64:ff9b::/96")
"""NAT64 (RFC 6052): the last 32 bits are the IPv4 address that a translator connects to."""

_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that IANA gives out. Outside: `::/96` with an IPv4 address, local NAT64, private ranges."""

_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "192.0.0.0/24", "192.88.99.0/24")
)
"""Ranges of the IANA special-purpose registries that hold no server, or one that `is_global` of some Python
versions lets pass: protocols such as Teredo, 6to4 and its relays, documentation.
"""

# `identity`: what is counted and hashed on the way is the file itself.
_HEADERS = {"User-Agent": "delegate-farm", "Accept-Encoding": "identity", "Accept": "*/*"}

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Web:
    """The addresses that may be reached. `allow_private`: loopback, private and link-local addresses too.

    `registry`: of npm packages.
    """

    allow_private: bool = False
    registry: str = DEFAULT_REGISTRY

    @contextmanager
    def open(self, url: str, most_bytes: int, what: str) -> "Iterator[Body]":
        """Open the content behind a URL, redirects followed. `what` names it in messages.

        Raises `UsageError` for content that is missing or forbidden, `UnreachableError` where the network
        fails.
        """
        for _ in range(MOST_REDIRECTS + 1):
            parts = parse_url(url, what)
            # Checked for every redirect: it may lead to a private address.
            connection = CheckedConnection(parts, self._checked(parts, what))
            try:
                with _mapped(what):
                    headers = _HEADERS | {"Host": parts.netloc.rpartition("@")[2]}
                    connection.request("GET", target_of(parts), headers=headers)
                    answer = connection.getresponse()
                if answer.status in _REDIRECTS:
                    url = urljoin(url, answer.headers.get("location", ""))
                    continue
                yield Body(answer, _length(answer, most_bytes, what), most_bytes, what)
                return
            finally:
                connection.close()
        raise UsageError(f"{what}: more than {MOST_REDIRECTS} redirects")

    def _checked(self, parts: SplitResult, what: str) -> list[str]:
        """Return the addresses of a host. Raises if one of them is not allowed."""
        host = str(parts.hostname)
        try:
            addresses = resolved(parts)
        except OSError as error:
            raise UnreachableError(
                f"{what}: {host} cannot be found: {error}; go online, or use a local path"
            ) from error
        text = None if self.allow_private else private_among(addresses)
        if text is not None:
            raise UsageError(
                f"{what}: {host} is {text}, which is not a public address; if that is intended, "
                "set FARM_ALLOW_PRIVATE=1, or allow_private = true in farm.toml"
            )
        return addresses


@dataclass(slots=True)
class Body:
    """The content of an answer, read in pieces with the limits of its `Web.open`."""

    answer: http.client.HTTPResponse
    length: int | None
    most_bytes: int
    what: str
    _seen: int = 0
    _until: float = 0.0

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; empty at the end.

        Raises `UsageError` above the limit, `UnreachableError` where it ends early or takes too long.
        """
        self._until = self._until or time.monotonic() + DOWNLOAD_LIMIT_S
        with _mapped(self.what):
            # Not `read`, which waits for all of `size`: a slow server would hold it beyond the limits below.
            block = self.answer.read1(size)
        self._seen += len(block)
        if self._seen > self.most_bytes:
            raise UsageError(f"{self.what}: larger than {self.most_bytes} bytes")
        if time.monotonic() > self._until:
            raise UnreachableError(f"{self.what}: the download took longer than {DOWNLOAD_LIMIT_S:.0f} s")
        # http.client reports a truncated body as if it were complete.
        if not block and self.length is not None and self._seen < self.length:
            raise UnreachableError(
                f"{self.what}: it ended after {self._seen} of {self.length} bytes; try again"
            )
        return block

    def read_all(self) -> bytes:
        """Read up to the end. Raises as `read`."""
        return b"".join(iter(lambda: self.read(BLOCK_BYTES), b""))


def parse_url(url: str, what: str) -> SplitResult:
    """Return the parts of an `https:` URL. Raises `UsageError`."""
    try:
        parts = urlsplit(url)
        # Read within the `try`: it raises `ValueError` for a port that is not a number.
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{what}: not a URL: {error}") from error
    if parts.scheme != "https" or not parts.hostname:
        raise UsageError(
            f"{what}: expected https://HOST/PATH, not {parts.scheme or 'nothing'}:{'//' * bool(parts.netloc)}"
        )
    # Also of a password alone: the name before it is then empty, and not None.
    if parts.username is not None:
        raise UsageError(f"{what}: a user name or password has no place in a URL")
    if re.search(r"[\x00-\x20\x7f]", url) or port == 0:
        raise UsageError(f"{what}: not a URL: it holds a blank or control character, or port 0")
    return parts


def resolved(parts: SplitResult) -> list[str]:
    """Every address of a URL's host. Raises `OSError`."""
    try:
        found = socket.getaddrinfo(str(parts.hostname), parts.port or 443, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        # The name is encoded as a domain name, which fails where a part is empty or too long.
        raise OSError(str(error)) from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def private_among(addresses: Iterable[str]) -> str | None:
    """Return the first address that is not public; None if all are.

    One is enough to refuse a host: which one a connection took would be up to the name server.
    """
    addressed = ((text, ipaddress.ip_address(text.partition("%")[0])) for text in addresses)
    return next((text for text, address in addressed if not is_public(address)), None)


def is_public(address: Address) -> bool:
    """Whether an address is of a server of the public Internet.

    A translated or mapped IPv4 address counts as that address. Tunnels (6to4, Teredo) and other forms with an
    IPv4 address inside are refused whatever it is: no server of today has one.
    """
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped
        if address in _TRANSLATED:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in _GLOBAL_UNICAST:
            return False
    special = any(address in network for network in _SPECIAL)
    return address.is_global and not address.is_multicast and not special


class CheckedConnection(http.client.HTTPSConnection):
    """Connects to one of the given addresses without resolving again; TLS still checks the host's name.

    `timeout_s`: of each connect and each read.
    """

    def __init__(self, parts: SplitResult, addresses: list[str], timeout_s: float = TIMEOUT_S) -> None:
        self._addresses = addresses
        self._tls = ssl.create_default_context()
        super().__init__(str(parts.hostname), parts.port or 443, timeout=timeout_s, context=self._tls)

    def connect(self) -> None:
        """Open the connection. Raises `OSError`."""
        failed: OSError | None = None
        for address in self._addresses:
            try:
                plain = socket.create_connection((address, self.port), self.timeout)
            except OSError as error:
                failed = error
                continue
            try:
                self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
            except OSError:
                plain.close()
                raise
            return
        raise failed or OSError("no address")


@contextmanager
def _mapped(what: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise FarmError(
            f"{what}: the server's certificate cannot be trusted: {error.verify_message}"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        text = str(error) or type(error).__name__
        raise UnreachableError(
            f"{what}: the server cannot be reached: {text}; try again, or use a local path"
        ) from error


def _length(answer: http.client.HTTPResponse, most_bytes: int, what: str) -> int | None:
    """Return the size that an answer announces, or None. Raises `UsageError` for any answer but content."""
    if answer.status != 200:
        raise UsageError(f"{what}: the server answers {answer.status} {answer.reason}")
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise UsageError(f"{what}: the server sends it {answer.headers['content-encoding']}-encoded")
    if answer.length is not None and answer.length > most_bytes:
        raise UsageError(f"{what}: larger than {most_bytes} bytes: it has {answer.length}")
    return answer.length


def target_of(parts: SplitResult) -> str:
    """Return the target of a request: path and query."""
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
