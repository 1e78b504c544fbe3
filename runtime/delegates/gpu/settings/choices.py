"""The outcome of tuning as a text, by which later starts use the same choices: `KEY=NAME KEY=NAME`.

A key is the beginning of a hash of what was compared, and of the device and the code; a name is that of the
candidate that was chosen. A start that is given choices times nothing; those of comparisons that it does not
make, as of schedules in earlier versions, have no effect.
"""

import re
from collections.abc import Mapping
from typing import Final

from runtime.errors import DelegateError

KEY_DIGITS: Final = 12
"""Hex digits of a key. Chosen: among the few hundred keys of a model two are equal with a probability of
1e-10; longer ones would only make the text longer, which a campaign file repeats."""

_ENTRY: Final = re.compile(rf"([0-9a-f]{{{KEY_DIGITS}}})=([A-Za-z0-9_.-]{{1,100}})")


def written(choices: Mapping[str, str]) -> str:
    """Return the text of choices, names by keys; equal choices give equal texts."""
    return " ".join(f"{key}={name}" for key, name in sorted(choices.items()))


def parsed(text: str) -> dict[str, str]:
    """Return the choices of a text, names by keys. Raises `DelegateError` for one that has another form."""
    found = {}
    for entry in text.split():
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise DelegateError(
                f"gpu delegate: option 'choices': {entry!r} is not KEY=NAME with a key of {KEY_DIGITS} hex "
                "digits; take the whole text from a result"
            )
        found[match[1]] = match[2]
    return found


def key_of(digest: str) -> str:
    """Return the key under which a choice stands in a text: the beginning of its hash."""
    return digest[:KEY_DIGITS]
