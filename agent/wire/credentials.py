"""The credentials of an agent: made on its own machine; the farm gets hashes and the public key only.

Both floors import this module; it imports only the wire.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agent.wire.envelope import PublicKey, SigningKey
from agent.wire.private_folder import FILE_MODE, private_folder
from agent.wire.secret_digest import digest
from agent.wire.service_urls import signed_in
from runtime.common.durable import write_atomically

FILE: Final = "credentials.json"

_SECRET_BYTES: Final = 32
"""Random bytes of a password or token: 256 bits cannot be guessed, so their hashes need no salt."""
_LONGEST_FILE: Final = 256 * 1024
"""Most bytes of the credentials file that are read. It holds keys and at most two CA certificates, which fit
many times; a longer file is cut and is not JSON then."""
_KEY_ID_DIGITS: Final = 16
"""Hex digits of the farm's key id at the end of a one-time token (`envelope.PublicKey.key_id`)."""
_TEXTS = ("agent_id", "broker_url", "key_prefix", "signing_key", "farm_key", "token")
_OPTIONAL = ("endpoint", "endpoint_ca", "broker_ca")


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of an enrolled agent. `broker_url` holds its password, `token` is for the endpoint.

    `farm_key`: the public key of the farm. `endpoint`: its URL, None: agent and farm share a store.
    `endpoint_ca`, `broker_ca`: CA certificates as PEM, None: the system's.
    """

    agent_id: str
    broker_url: str = field(repr=False)
    key_prefix: str
    signing_key: str = field(repr=False)
    farm_key: str
    token: str = field(repr=False)
    endpoint: str | None = None
    endpoint_ca: str | None = field(default=None, repr=False)
    broker_ca: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, state: Path) -> "Credentials":
        """Read them from an agent's state folder. Raises `OSError` or `ValueError`."""
        path = state / FILE
        try:
            with path.open("rb") as file:
                fields = json.loads(file.read(_LONGEST_FILE))
        except ValueError as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise ValueError(f"{path} is not a JSON object")
        return cls.of(fields)

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Credentials":
        """Make them from the values of such a file. Raises `ValueError` naming what is wrong."""
        for name in (*_TEXTS, *_OPTIONAL):
            value = fields.get(name)
            if (value is None and name not in _OPTIONAL) or not isinstance(value, str | None):
                raise ValueError(f"credentials: {name} is not text; enrol this host (again)")
        # For their checks alone: what is no key is noticed here, and not at the first message.
        SigningKey.read(fields["signing_key"])
        PublicKey.read(fields["farm_key"])
        return cls(**{name: fields.get(name) for name in (*_TEXTS, *_OPTIONAL)})  # type: ignore[arg-type]  # checked above

    def values(self) -> dict[str, str | None]:
        """Return every value by its name, secrets included."""
        return {name: getattr(self, name) for name in (*_TEXTS, *_OPTIONAL)}

    def write(self, state: Path) -> None:
        """Write them into a state folder, readable by this user only, all or nothing.

        Raises `OSError`, and `ExposedError` for a folder of others.
        """
        private_folder(state)
        write_secret(state / FILE, json.dumps(self.values(), indent=1))


@dataclass(frozen=True, slots=True)
class Applicant:
    """New secrets of an agent that requests its enrolment."""

    key: SigningKey
    token: str = field(repr=False)
    password: str = field(repr=False)

    @classmethod
    def new(cls) -> "Applicant":
        """Make new secrets of 256 random bits each."""
        return cls(
            SigningKey.new(), secrets.token_urlsafe(_SECRET_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
        )

    def request(self, invitation: str) -> dict[str, str]:
        """Return what to send to the farm with a one-time token: no secret but that token."""
        return {
            "token": invitation,
            "public_key": self.key.public.text,
            "token_sha256": digest(self.token),
            "password_sha256": digest(self.password),
            "proof": self.key.prove(invitation),
        }

    def accept(self, invitation: str, granted: Mapping[str, Any]) -> Credentials:
        """Return the credentials, from the farm's answer. Raises `ValueError`, also where the answer does not
        come from the farm that made the one-time token.
        """
        for name in ("agent_id", "broker_url", "broker_user", "key_prefix", "farm_key"):
            if not isinstance(granted.get(name), str):
                raise ValueError(f"the farm's answer lacks {name}")
        if PublicKey.read(granted["farm_key"]).key_id != farm_of(invitation):
            raise ValueError("another farm answered than the one that made this token; it is not trusted")
        return Credentials.of(
            {
                **{name: granted.get(name) for name in ("agent_id", "key_prefix", "farm_key", *_OPTIONAL)},
                "broker_url": signed_in(granted["broker_url"], granted["broker_user"], self.password),
                "signing_key": self.key.secret(),
                "token": self.token,
            }
        )


def farm_of(invitation: str) -> str:
    """Return the key id of the farm that made a one-time token SECRET.KEYID. Raises `ValueError`."""
    secret, dot, key_id = invitation.rpartition(".")
    if not dot or not secret or len(key_id) != _KEY_ID_DIGITS:
        raise ValueError("this is not a token of `farm lab agents enrol`")
    return key_id


def write_secret(path: Path, text: str) -> None:
    """Write a file of mode 0600, all or nothing, in an existing folder. Raises `OSError`."""
    write_atomically(path, text.encode(), FILE_MODE)
