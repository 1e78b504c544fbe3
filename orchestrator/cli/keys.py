"""`farm lab keys list | rotate | retire`: show and replace the key that signs for the farm."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import output
from orchestrator.cli.verb import Json
from orchestrator.config.clock import utc_now
from orchestrator.config.home import FarmHome
from orchestrator.trust.farm_key_rotation import FarmKeys, read, retire, rotate

_LONGEST_MINUTES = 30 * 24 * 60
"""Minutes that two keys are trusted, at most: 30 days. Chosen: an agent that is away for longer enrols
again.
"""

Overlap = Annotated[
    int, typer.Option(help="Minutes for which the present key stays valid.", min=1, max=_LONGEST_MINUTES)
]


def list_keys(as_json: Json = False) -> int:
    """List the farm's keys that are valid now.

    Examples:
      farm lab keys list
    """
    return _show(read(_folder(), utc_now()), as_json)


def rotate_key(overlap: Overlap = 1440, as_json: Json = False) -> int:
    """Generate a new key for the farm, on the server; no job is lost and nothing restarts.

    Running agents learn it within a heartbeat and trust both keys for `--overlap` minutes. An agent that is
    away for all that time needs new secrets: farm lab agents rotate NAME.

    Examples:
      farm lab keys rotate
      farm lab keys rotate --overlap 2880
    """
    now = utc_now()
    return _show(rotate(_folder(), now, now + timedelta(minutes=overlap)), as_json)


def retire_key(as_json: Json = False) -> int:
    """End the validity of the replaced key now, here and at every agent.

    Examples:
      farm lab keys retire
    """
    return _show(retire(_folder(), utc_now()), as_json)


def _folder() -> Path:
    return FarmHome.from_environment().keys


def _show(keys: FarmKeys, as_json: bool) -> int:
    rows = [
        {
            "key": key.key_id,
            "state": "former" if number else "current",
            "until": keys.until if number else None,
        }
        # The key that signs comes first.
        for number, key in enumerate(keys.public)
    ]
    lines = [f"{keys.current.public.key_id} signs for the farm"]
    if keys.former is not None:
        lines.append(f"{keys.former.public.key_id} stays valid until {keys.until:%Y-%m-%d %H:%M} UTC")
    return output.answer(rows, lines, as_json)


VERBS = {"list": list_keys, "rotate": rotate_key, "retire": retire_key}
