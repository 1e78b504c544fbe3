"""Signed envelopes: the form in which the farm and its agents exchange messages through a broker.

`1.<key id>.<signature>.<body>`: the body is canonical JSON {v, kind, agent_id, attempt_id?, device_id?,
epoch?, farm?, issued, expires, nonce, payload}. The signature (Ed25519) covers its exact bytes and is checked
before they are parsed. Both floors import this module; it imports only the wire.
"""

import base64
import binascii
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent.wire.queue import MAX_ENVELOPE_BYTES, MAX_VALUES

VERSION: Final = 1
"""Version of the envelope's form, in front of its text and in its body. A receiver opens no other one."""
MAX_DEPTH: Final = 32
"""Deepest nesting of a body. Messages of this protocol are nested less than ten deep; the bound keeps a
signed but hostile body from exhausting the stack."""
MAX_NONCES: Final = 200_000
"""Most nonces of one sender that are remembered: about 30 MB. An agent that sends two messages per second,
more than a busy one does, sends 172,800 in the day that an envelope is valid. Larger lets an agent fill the
farm's memory; smaller refuses envelopes that were under way for hours."""
KEYS_KIND: Final = "farm-keys"
"""Kind of the message that names the farm's keys which an agent is to trust."""
LIFETIME_S: Final = 86_400.0
"""Seconds from `issued` to `expires`: one day. Senders repeat in new envelopes what is not confirmed, so an
older envelope is never needed. Larger means more nonces to remember; smaller must still exceed the time after
which a message is repeated."""

_SIGNED: Final = b"delegate-farm envelope 1\n"
_PROOF: Final = b"delegate-farm enrolment 1\n"
_NONCE_BYTES: Final = 16
"""Random bytes of a nonce: with 128 bits no two envelopes share one."""
_KEY_BYTES: Final = 32
"""Bytes of an Ed25519 key, private or public (RFC 8032)."""
_SIGNATURE_BYTES: Final = 64
"""Bytes of an Ed25519 signature (RFC 8032)."""
_KEY_ID_DIGITS: Final = 16
"""Hex digits of a key id: 64 bits tell keys apart; the signature, not the id, proves who signed."""
_LATEST_TIME_S: Final = 1e11
"""Bound of a time in seconds since 1970, about the year 5138; it keeps sums of times exact and finite."""
_FORGET_AT_ONCE: Final = 4
"""Nonces looked at per envelope, and dropped if expired: more than one, so that the memory can shrink."""
_ABOUT: Final = ("attempt_id", "device_id", "epoch")
_MOST_KEYS: Final = 8
"""Most keys in one announcement. A farm has two at most, during a rotation; the rest is room."""
_HEAD: Final = frozenset({"v", "kind", "agent_id", "issued", "expires", "nonce", "payload"})


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that signatures are checked with. `key_id`: the first 16 hex digits of its sha256."""

    key_id: str
    text: str
    _key: Ed25519PublicKey = field(repr=False)

    @classmethod
    def read(cls, text: str) -> "PublicKey":
        """Read a key from 32 bytes in URL-safe base64. Raises `ValueError`."""
        raw = _decoded(text, "a public key", _KEY_BYTES)
        return cls(
            hashlib.sha256(raw).hexdigest()[:_KEY_ID_DIGITS],
            _encoded(raw),
            Ed25519PublicKey.from_public_bytes(raw),
        )

    def verify(self, signature: bytes, signed: bytes) -> None:
        """Check a signature. Raises `ValueError` for one of another key or of other bytes."""
        try:
            self._key.verify(signature, signed)
        except InvalidSignature as error:
            raise ValueError("the signature is wrong") from error


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that signs. Its text is a secret."""

    public: PublicKey
    _key: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> "SigningKey":
        """Make a new random key."""
        return cls._of(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, secret: str) -> "SigningKey":
        """Read a key from the text that `secret` returns. Raises `ValueError`."""
        return cls._of(Ed25519PrivateKey.from_private_bytes(_decoded(secret, "a signing key", _KEY_BYTES)))

    @classmethod
    def _of(cls, key: Ed25519PrivateKey) -> "SigningKey":
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return cls(PublicKey.read(_encoded(raw)), key)

    def secret(self) -> str:
        """Return the key itself, for a file that only its owner may read: 32 bytes in URL-safe base64."""
        return _encoded(self._key.private_bytes_raw())

    def sign(self, signed: bytes) -> bytes:
        """Return the signature of some bytes, 64 bytes long."""
        return self._key.sign(signed)

    def prove(self, token: str) -> str:
        """Return a proof that the sender of an enrolment request with this token holds this key."""
        return _encoded(self.sign(_PROOF + token.encode()))


def check_proof(key: PublicKey, token: str, proof: str) -> None:
    """Check a proof. Raises `ValueError` where it was not made with this key for this token."""
    key.verify(_decoded(proof, "a proof", _SIGNATURE_BYTES), _PROOF + token.encode())


@dataclass(frozen=True, slots=True)
class Envelope:
    """An envelope whose signature was right. `issued`, `expires`: seconds since 1970 by the sender's clock.

    `farm`: ids of the farm's keys that the sender trusts, where it is an agent.
    """

    kind: str
    agent_id: str
    issued: float
    expires: float
    nonce: str
    payload: bytes
    farm: tuple[str, ...] = ()


def seal(key: SigningKey, agent_id: str, payload: bytes, issued: float, farm: Sequence[str] = ()) -> str:
    """Sign a message (an object with a `type`). `farm`: see `Envelope`. Raises `ValueError`."""
    message = _parse(payload)
    head: dict[str, Any] = {
        "v": VERSION,
        "kind": message.get("type"),
        "agent_id": agent_id,
        "issued": issued,
        "expires": issued + LIFETIME_S,
        "nonce": secrets.token_hex(_NONCE_BYTES),
        "payload": message,
    }
    head |= {name: message[name] for name in _ABOUT if name in message}
    if farm:
        head["farm"] = " ".join(farm)
    body = _canonical(head)
    return f"{VERSION}.{key.public.key_id}.{_encoded(key.sign(_SIGNED + body.encode()))}.{body}"


def key_id_of(envelope: str) -> str:
    """Return the id of the key that an envelope claims. Raises `ValueError` for what is not an envelope."""
    return _split(envelope)[0]


def open_envelope(envelope: str, key: PublicKey) -> Envelope:
    """Check size, signature and form. Raises `ValueError`, whose text repeats nothing of the message."""
    key_id, signature, body = _split(envelope)
    if key_id != key.key_id:
        raise ValueError(f"signed with key {key_id}, not with {key.key_id}")
    # Before anything is parsed: no unsigned bytes reach the JSON reader.
    key.verify(_decoded(signature, "a signature", _SIGNATURE_BYTES), _SIGNED + body.encode())
    head = _parse(body.encode())
    message = head.get("payload")
    if not isinstance(message, dict) or set(head) - {*_ABOUT, "farm"} != _HEAD or head["v"] != VERSION:
        raise ValueError("the body is malformed")
    if head["kind"] != message.get("type") or any(head.get(name) != message.get(name) for name in _ABOUT):
        raise ValueError("head and payload contradict each other")
    agent_id, nonce, issued, expires = (head[name] for name in ("agent_id", "nonce", "issued", "expires"))
    farm = head.get("farm", "")
    words = (head["kind"], agent_id, nonce, farm)
    if not all(isinstance(word, str) for word in words) or not all(map(_is_time, (issued, expires))):
        raise ValueError("the body is malformed")
    if len(nonce) != 2 * _NONCE_BYTES or not issued <= expires <= issued + LIFETIME_S:
        raise ValueError("nonce or times are malformed")
    return Envelope(
        head["kind"], agent_id, issued, expires, nonce, _canonical(message).encode(), tuple(farm.split())
    )


def keys_message(keys: Iterable[PublicKey]) -> bytes:
    """Return the message that tells an agent to trust these keys of the farm from now on, and no others."""
    return _canonical({"type": KEYS_KIND, "keys": [key.text for key in keys]}).encode()


def read_keys(payload: bytes) -> tuple[PublicKey, ...]:
    """Return the keys of such a message. Raises `ValueError`."""
    texts = _parse(payload).get("keys")
    if not isinstance(texts, list) or not 1 <= len(texts) <= _MOST_KEYS:
        raise ValueError(f"a farm has 1 to {_MOST_KEYS} keys")
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a public key is malformed")
    return tuple(PublicKey.read(text) for text in texts)


@dataclass(slots=True)
class Freshness:
    """Refuses replays and expired envelopes of one sender.

    Ages are measured against the sender's own clock, estimated from the newest `issued` and the time since:
    the clocks of two machines need not agree. `newest`: the latest `issued` that was seen.
    """

    newest: float = 0.0
    monotonic: Callable[[], float] = time.monotonic
    most: int = MAX_NONCES
    _forgotten_until: float = 0.0
    _newest_at_s: float = field(init=False)
    _seen: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._newest_at_s = self.monotonic()

    def accept(self, envelope: Envelope) -> None:
        """Accept an envelope once. Raises `ValueError` where it has expired or was accepted before."""
        late_s = self.now() - envelope.expires
        if late_s > 0:
            raise ValueError(
                f"it expired {late_s:.0f} s ago by its sender's clock; where that clock was set back by "
                "days, enrol the agent again"
            )
        if envelope.expires <= self._forgotten_until:
            raise ValueError(f"its sender has sent more than {self.most} others since")
        if envelope.nonce in self._seen:
            raise ValueError("it was received before")
        self.remember(envelope.nonce, envelope.issued, envelope.expires)

    def remember(self, nonce: str, issued: float, expires: float) -> None:
        """Note an envelope as `accept` does, without checking it."""
        self._seen[nonce] = expires
        if issued > self.now():
            self.newest, self._newest_at_s = issued, self.monotonic()
        self._forget()

    def now(self) -> float:
        """Return the least that the sender's clock can show now, in seconds since 1970."""
        return self.newest + self.monotonic() - self._newest_at_s

    def _forget(self) -> None:
        """Drop a few expired nonces: their envelopes are refused by their time from now on. Of too many, the
        oldest are dropped with all that expires before them.
        """
        while len(self._seen) > self.most:
            self._forgotten_until = max(self._forgotten_until, self._seen.pop(next(iter(self._seen))))
        now = self.now()
        for nonce in [nonce for nonce, _ in zip(self._seen, range(_FORGET_AT_ONCE), strict=False)]:
            if self._seen[nonce] < now:
                del self._seen[nonce]


@dataclass(slots=True)
class IssueClock:
    """A clock for `issued` that never goes back: to the receiver an older time means an older envelope."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    _last: float = 0.0
    _last_at_s: float = 0.0

    def now(self) -> float:
        """Return seconds since 1970, or more where the clock was ahead once."""
        now_s = self.monotonic()
        # By the clock that nobody can set back.
        passed = self._last + now_s - self._last_at_s if self._last else 0.0
        self._last, self._last_at_s = max(self.wall(), passed), now_s
        return self._last

    def advance_to(self, least: float) -> None:
        """Show at least this time from now on."""
        if least > self.now():
            self._last = least


def _split(envelope: str) -> tuple[str, str, str]:
    if len(envelope) > MAX_ENVELOPE_BYTES:
        raise ValueError(f"an envelope of {len(envelope)} bytes; the limit is {MAX_ENVELOPE_BYTES}")
    version, _, rest = envelope.partition(".")
    key_id, _, rest = rest.partition(".")
    signature, dot, body = rest.partition(".")
    # `_canonical` writes ASCII alone, so that the characters of a body are its bytes.
    if version != str(VERSION) or not dot or len(key_id) != _KEY_ID_DIGITS or not body.isascii():
        raise ValueError("no signed envelope")
    # Before it is parsed: a value takes many times its text in memory.
    if sum(map(body.count, "[{,")) > MAX_VALUES:
        raise ValueError(f"an envelope with more than {MAX_VALUES} brackets and commas")
    return key_id, signature, body


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    # Level by level, so that the depth of a body costs no stack here.
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        level = [inner for value in level for inner in _inner(value) if isinstance(inner, dict | list)]
        if not level:
            return found
    raise ValueError(f"nested deeper than {MAX_DEPTH}")


def _inner(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a JSON number")


def _is_time(value: object) -> bool:
    # A bool is an int to Python.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LATEST_TIME_S


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _decoded(text: str, what: str, length: int) -> bytes:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{what} is malformed") from error
    if len(raw) != length:
        raise ValueError(f"{what} of {len(raw)} bytes, not of {length}")
    # Base64 leaves bits unused: other texts would stand for the same bytes.
    if _encoded(raw) != text:
        raise ValueError(f"{what} is malformed")
    return raw
