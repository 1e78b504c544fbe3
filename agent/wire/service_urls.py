"""The URLs of a lab's broker and endpoint: with the login of an agent, without any, and across which wire."""

from typing import Final
from urllib.parse import quote, urlsplit

PLAIN_SCHEMES: Final = ("redis", "http")
INGEST_SUFFIX: Final = ".ingest"
"""Added to an agent's user name at the broker: the user that may only add to its ingest list."""


def signed_in(url: str, user: str, password: str) -> str:
    """Return a broker's URL with this user and password instead of any other. Raises `ValueError`."""
    scheme, host, rest = _parts(url)
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{host}{rest}"


def for_ingest(url: str) -> str:
    """Return a broker's URL with the user of the ingest list, if it names a user. Raises `ValueError`."""
    parts = urlsplit(url)
    # At the last @, as `urlsplit` itself divides them.
    login, at, host = parts.netloc.rpartition("@")
    user, colon, password = login.partition(":")
    if not user:
        return url
    return parts._replace(netloc=f"{user}{INGEST_SUFFIX}{colon}{password}{at}{host}").geturl()


def without_secrets(url: str) -> str:
    """Return the same URL without user and password. Raises `ValueError`."""
    scheme, host, rest = _parts(url)
    return f"{scheme}://{host}{rest}"


def _parts(url: str) -> tuple[str, str, str]:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts.scheme, host, parts._replace(scheme="", netloc="").geturl()


def crosses_in_the_clear(url: str) -> bool:
    """Whether a URL leads off this machine without TLS. Raises `ValueError`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return parts.scheme in PLAIN_SCHEMES and not (
        # Without a host, a client of Redis connects to this machine. A name may begin with 127., too.
        host in ("", "localhost", "::1") or (host.startswith("127.") and host.replace(".", "").isdigit())
    )
