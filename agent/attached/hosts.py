"""The devices that the operator attached to this host, as the file that `FARM_ATTACHED` names lists them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, StringConstraints, ValidationError

from agent.wire.bounded import Text, Wire

ATTACHED_VARIABLE: Final = "FARM_ATTACHED"
"""The list of attached devices, the absolute path of a TOML file."""

KINDS: Final = ("ssh", "adb")
"""The kinds of attached devices, by what reaches them; the `api` of a device is its kind."""

MOST_ATTACHED: Final = 64
"""Chosen: more than the ports of a rack of phones; each is asked for its description at every start."""

_Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_\[][^\s\x00-\x1f\x7f]*$", max_length=255)]
"""No option of the program that it is given to."""

_RemotePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00-\x1f\x7f]*$", max_length=1000)]


class _Device(Wire):
    """The settings of every device, however it is reached.

    `benchmark_model`: LiteRT's tool on the device; `version`: its release, which it does not tell itself.
    `delegates`: what it was built with. `evaluation`: a folder of LiteRT's evaluation tools, by their names,
    as far as they are there. `folder`: where a folder for each attempt is made.
    """

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
    benchmark_model: _RemotePath
    version: Text = ""
    evaluation: _RemotePath | None = None
    delegates: tuple[Literal["litert", "litert-gpu"], ...] = Field(default=("litert",), min_length=1)


class OverSsh(_Device):
    """A device behind `ssh`. `host`: as `ssh` takes it, `USER@HOST` or a name of `ssh_config`, a file in
    place of the user's own.
    """

    kind: Literal["ssh"] = "ssh"
    host: _Address
    folder: _RemotePath = "/tmp"  # noqa: S108  # on the device
    ssh_config: _RemotePath | None = None

    @property
    def address(self) -> str:
        """Its address, as the program that reaches it takes it."""
        return self.host


class OverAdb(_Device):
    """A device of Android. `serial`: as `adb devices` lists it, `HOST:PORT` for one on a network."""

    kind: Literal["adb"] = "adb"
    serial: _Address
    folder: _RemotePath = "/data/local/tmp"

    @property
    def address(self) -> str:
        """Its address, as the program that reaches it takes it."""
        return self.serial


Attached: TypeAlias = Annotated[OverSsh | OverAdb, Field(discriminator="kind")]


class _File(Wire):
    attached: tuple[Attached, ...] = Field(max_length=MOST_ATTACHED)


def attached_devices(environment: Mapping[str, str] = os.environ) -> tuple[Attached, ...]:
    """Return what the file lists; nothing without one. Raises `ValueError` naming variable, file and key."""
    text = environment.get(ATTACHED_VARIABLE)
    if not text:
        return ()
    file = Path(text)
    if not file.is_absolute() or not file.is_file():
        raise ValueError(f"{ATTACHED_VARIABLE}: {text!r} is not the absolute path of a file; see docs/lab.md")
    import tomllib  # noqa: PLC0415  # every process of an attempt imports this module

    try:
        listed = _File.model_validate(tomllib.loads(file.read_text("utf-8"))).attached
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{ATTACHED_VARIABLE}: {file} cannot be read: {error}") from error
    except ValidationError as error:
        # One is enough for a message; whoever mends it sees the next one.
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{ATTACHED_VARIABLE}: {file}: {place}: {first['msg']}; see docs/lab.md") from error
    names = [one.name for one in listed]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{ATTACHED_VARIABLE}: {file} names {', '.join(sorted(twice))} twice")
    return listed
