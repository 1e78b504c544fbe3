"""Tells an address on the Internet that a campaign has ended: one signed message over https.

The address is untrusted, as a campaign file is: only public addresses are connected to, the connection goes
to the address that was checked (a name server that answers otherwise the next time changes nothing),
redirects are not followed, and nothing of the answer is read but its status. What fails here never fails a
campaign.
"""

import hashlib
import hmac
import http.client
import json
import os
import secrets
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer
from typing import Any, Final
from urllib.parse import SplitResult

from orchestrator.errors import UsageError
from orchestrator.manifest.campaign import Notify
from orchestrator.results.budgets import Judged
from orchestrator.results.records import CampaignRecord, CellRecord
from orchestrator.results.regression import Report
from orchestrator.results.speedups import Baselines, speedup
from orchestrator.sources.web import CheckedConnection, parse_url, private_among, resolved, target_of

SECRET_VARIABLE: Final = "FARM_NOTIFY_SECRET"  # noqa: S105  # the name of a variable
"""The environment variable with the secret by which a receiver checks the signature."""

HOSTS_VARIABLE: Final = "FARM_NOTIFY_HOSTS"
"""The environment variable with the hosts that a campaign file may name as receivers, separated by commas."""

SIGNATURE_HEADER: Final = "X-Farm-Signature"
"""The header with time, nonce and signature of a message: see `signature`."""

MOST_TRIES: Final = 3
"""Times that a message is sent, at most. Chosen: an overloaded receiver gets two more chances; with more, the
command would wait for one that is down."""

TRY_LIMIT_S: Final = 10.0
"""Seconds that one try may take in all, but for finding the name. Chosen: a receiver only has to take note; a
longer limit makes every submission wait for a receiver that hangs."""

PAUSES_S: Final = (1.0, 4.0)
"""Seconds before the second and the third try. Chosen: a receiver that restarts is back by then."""

_MOST_LISTED: Final = 50
"""Budgets that a message lists, at most, each with its cell and figures. Chosen: some kB; the counts are of
all."""

_TRY_AGAIN: Final = (429, 500, 502, 503, 504)
"""Answers after which the same message may be taken: too many requests, and faults of the server."""


class _FailedError(Exception):
    """A try failed. `final`: another one would fail as well."""

    def __init__(self, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.final = final


@dataclass(frozen=True, slots=True)
class Notifier:
    """Sends messages to one address.

    `refused`: the first of a host's addresses that must not be connected to, None where there is none.
    `pauses_s`: seconds before the second and each further try.
    """

    notify: Notify
    secret: bytes
    refused: Callable[[Iterable[str]], str | None] = private_among
    pauses_s: Sequence[float] = PAUSES_S

    @classmethod
    def of(cls, notify: Notify, *, by_file: bool) -> "Notifier":
        """Create a notifier with the secret of the environment. Raises `UsageError`, before anything is
        measured: also where a campaign file names a receiver that this machine does not allow.
        """
        host = parse_url(notify.url, "notify").hostname or ""
        if by_file and host not in map(str.strip, os.environ.get(HOSTS_VARIABLE, "").lower().split(",")):
            raise UsageError(
                f"notify: {host} may not be told: a file of somebody else could name it; allow it with "
                f"{HOSTS_VARIABLE}={host}, or give it yourself: --notify URL"
            )
        secret = os.environ.get(SECRET_VARIABLE, "")
        if not secret:
            raise UsageError(
                f"notify: {SECRET_VARIABLE} is not set; set it to a secret that the receiver knows, too, by "
                "which it checks who has sent a message"
            )
        return cls(notify, secret.encode())

    @property
    def receiver(self) -> str:
        """The address without its path, which is often a secret."""
        return f"https://{parse_url(self.notify.url, 'notify').netloc}"

    def send(self, body: bytes) -> str | None:
        """Send a message, at most `MOST_TRIES` times. Returns why it was not taken; None where it was."""
        parts = parse_url(self.notify.url, "notify")
        # Of the message, not of a try: a receiver that took the first one knows the second again.
        signed = signature(self.secret, int(time.time()), secrets.token_hex(16), self.notify.url, body)
        why = ""
        for number in range(MOST_TRIES):
            try:
                self._try(parts, body, signed)
                return None
            except _FailedError as error:
                why = str(error)
                if error.final:
                    return why
            if number < MOST_TRIES - 1:
                time.sleep(self.pauses_s[number])
        return f"{why} ({MOST_TRIES} tries)"

    def _try(self, parts: SplitResult, body: bytes, signed: str) -> None:
        try:
            addresses = resolved(parts)
        except OSError as error:
            raise _FailedError(f"{parts.hostname} cannot be found: {error}") from error
        refused = self.refused(addresses)
        if refused is not None:
            text = f"{parts.hostname} is {refused}, which is not a public address"
            raise _FailedError(text, final=True)
        try:
            status = self._posted(CheckedConnection(parts, addresses, TRY_LIMIT_S), parts, body, signed)
        # Before `OSError`, of which it is one: no further try would mend it.
        except ssl.SSLCertVerificationError as error:
            text = f"the receiver's certificate cannot be trusted: {error.verify_message}"
            raise _FailedError(text, final=True) from error
        except (OSError, http.client.HTTPException) as error:
            raise _FailedError(f"no answer: {str(error) or type(error).__name__}") from error
        if 300 <= status < 400:
            raise _FailedError(f"it answers {status}, and redirects are not followed", final=True)
        if not 200 <= status < 300:
            raise _FailedError(f"it answers {status}", final=status not in _TRY_AGAIN)

    def _posted(self, connection: CheckedConnection, parts: SplitResult, body: bytes, signed: str) -> int:
        """Post a message and return the status of the answer. Raises `OSError`, `HTTPException`."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "delegate-farm",
            SIGNATURE_HEADER: signed,
        }
        try:
            connection.connect()
            # A socket's own limit is of each read: a receiver that sends a byte now and then would pass it.
            limit = Timer(TRY_LIMIT_S, _shut, (connection.sock,))
            limit.start()
            try:
                connection.request("POST", target_of(parts), body, headers)
                return connection.getresponse().status
            finally:
                limit.cancel()
        finally:
            connection.close()


def signature(secret: bytes, time_s: int, nonce: str, receiver: str, body: bytes) -> str:
    """Return `t=SECONDS,nonce=HEX,sha256=HEX`, as docs/results-format.md describes it.

    Signed are time, nonce, receiver and body: a message that was recorded is neither taken later, nor twice,
    nor by another receiver with the same secret.
    """
    signed = f"{time_s}\n{nonce}\n{receiver}\n".encode() + body
    return f"t={time_s},nonce={nonce},sha256={hmac.new(secret, signed, hashlib.sha256).hexdigest()}"


def _shut(connected: socket.socket) -> None:
    # Beneath TLS: `SSLSocket.shutdown` would take the state away in which another thread is reading.
    with suppress(OSError):
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def message(
    campaign: CampaignRecord,
    cells: Sequence[CellRecord],
    judged: Sequence[Judged],
    earlier: Report | None,
    exit_code: int,
    link: str | None,
) -> bytes:
    """Build the body of a message (docs/results-format.md): the ended campaign and its verdicts."""
    told: dict[str, Any] = {
        "version": 1,
        "campaign": {"id": campaign.campaign_id, "name": campaign.name, "level": campaign.level},
        "labels": dict(campaign.labels),
        "counts": dict(Counter(cell.status for cell in cells)),
        "wrong_output": sum(cell.struck_out for cell in cells),
        "verdicts": dict(Counter(_verdicts(cells, campaign.baseline))),
        "against": None if earlier is None else dict(earlier.counts),
        "budgets": dict(Counter(one.outcome for one in judged)),
        "not_met": [_budget(one) for one in judged if one.outcome != "met"][:_MOST_LISTED],
        "exit_code": exit_code,
        "url": link,
    }
    return json.dumps(told, ensure_ascii=False).encode()


def _verdicts(cells: Sequence[CellRecord], baseline: str | None) -> Iterator[str]:
    baselines = Baselines.among(baseline, cells)
    for cell in cells:
        found = speedup(cell, baselines.of(cell))
        if found is not None:
            yield found.verdict


def _budget(one: Judged) -> dict[str, str]:
    cell = one.cell
    named = {"model": cell.model, "delegate": cell.delegate, "device": cell.device}
    return {"budget": one.budget.text, "outcome": one.outcome, **named, "said": one.said}
