"""Calls the farm from a user's machine, which has nothing of it but the address and a token."""

import http.client
import json
import ssl
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent.wire.private_folder import FILE_MODE
from orchestrator.config.address import Address
from orchestrator.endpoint.client import open_connection
from orchestrator.errors import FarmError, UnreachableError, UsageError
from orchestrator.trust.users import AUTHORITY_DIGITS, authority_id
from runtime.common.durable import write_atomically

VERSION: Final = 1
"""Version of the calls' form. It grows where a machine with the former one would misunderstand an answer."""

LARGEST_ANSWER_BYTES: Final = 256 << 20
"""Bytes of an answer that are read, at most. Chosen: far above a page of cells and the plan of the largest
campaign; it keeps a wrong server from filling the memory.
"""

_LARGEST_AUTHORITY_BYTES: Final = 1 << 20
"""Bytes of a CA file that are read, at most: a certificate has a few KiB, a file may hold several."""

_TIMEOUT_S: Final = 120.0
"""Seconds without a byte after which the farm does not answer. Chosen: planning the largest campaign on a
loaded server takes less.
"""

_ERRORS: Final = {error.exit_code: error for error in (FarmError, UsageError, UnreachableError)}


@dataclass(slots=True)
class UserClient:
    """One connection to the farm, opened when it is needed. Any thread may use it; calls take turns."""

    address: Address
    token: str = field(repr=False)
    _connection: http.client.HTTPConnection | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def call(self, name: str, arguments: bytes) -> bytes:
        """Make a call. Raises what the farm's face raises there, and `UnreachableError`."""
        with self._turn:
            kept = self._connection is not None
            try:
                try:
                    return self._asked(name, arguments)
                except ConnectionError:
                    if not kept:
                        raise
                    # The farm closes a connection that idles; every call may be made twice.
                    self.close()
                    return self._asked(name, arguments)
            except (OSError, http.client.HTTPException) as error:
                # An answer that comes late must not be read as that of the next call.
                self.close()
                raise UnreachableError(self._silent(str(error))) from error

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _asked(self, name: str, arguments: bytes) -> bytes:
        if self._connection is None:
            self._connection = open_connection(self.address, _TIMEOUT_S)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        self._connection.request("POST", f"/farm/{VERSION}/{name}", arguments, headers)
        answer = self._connection.getresponse()
        body = answer.read(LARGEST_ANSWER_BYTES + 1)
        if len(body) > LARGEST_ANSWER_BYTES:
            self.close()
            raise FarmError(f"{self.address.url} answers more than {LARGEST_ANSWER_BYTES} bytes to {name}")
        if answer.status == http.client.OK:
            return body
        raise self._refused(answer.status, body)

    def _refused(self, status: int, body: bytes) -> FarmError:
        """Rebuild the error that the farm's answer describes, as its face raised it."""
        told = _told(body)
        text = str(told.get("error", f"it answers {status}"))
        code = told.get("exit_code")
        if code in _ERRORS:
            return _ERRORS[code](text)
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN, http.client.NOT_FOUND):
            return UsageError(f"{self.address.url}: {text}")
        if status >= http.client.INTERNAL_SERVER_ERROR:
            return UnreachableError(f"{self.address.url}: {text}")
        return FarmError(f"{self.address.url}: {text}")

    def _silent(self, why: str) -> str:
        return f"the farm at {self.address.url} does not answer: {why}; see FARM_URL"


def trusting(address: Address, token: str, folder: Path) -> Address:
    """Return the address with the CA that the token names; it is fetched once and kept in `folder`.

    An address that names a CA, or is without TLS, stays as it is. Raises `UnreachableError`, and `UsageError`
    where the server shows another CA than the token's.
    """
    named = token.rpartition(".")[2]
    # Without a third part in the token, a CA of the system has signed the certificate.
    if address.authority is not None or address.url.startswith("http:") or token.count(".") < 2:
        return address
    kept = folder / f"authority-{named[:AUTHORITY_DIGITS]}.pem"
    # Compared every time: the file decides to whom this machine shows its token.
    if not kept.is_file() or authority_id(kept.read_text()) != named:
        text = _authority_of(address)
        if authority_id(text) != named:
            raise UsageError(
                f"{address.url} shows another CA than FARM_TOKEN names; where the lab's CA was replaced, the "
                "administrator makes a new token: farm lab users add NAME --replace"
            )
        write_atomically(kept, text.encode(), FILE_MODE)
    return replace(address, authority=kept)


def _authority_of(address: Address) -> str:
    """Fetch the CA that the server presents. The connection proves nothing: the caller compares its hash."""
    parts = urlsplit(address.url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        str(parts.hostname), parts.port, timeout=_TIMEOUT_S, context=context
    )
    try:
        connection.request("GET", "/authority")
        body = connection.getresponse().read(_LARGEST_AUTHORITY_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise UnreachableError(f"the farm at {address.url} does not answer: {error}; see FARM_URL") from error
    finally:
        connection.close()
    return str(_told(body).get("authority"))


def _told(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
