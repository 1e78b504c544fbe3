"""Labels of a campaign as options and references write them: WORD, or NAME=VALUE."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from orchestrator.errors import UsageError
from orchestrator.manifest.schema import LONGEST_LABEL, NAME_PATTERN

MOST_LABELS: Final = 100
"""The most labels that options give a campaign. Chosen: more than anybody reads in a table."""


def read_labels(words: Iterable[str]) -> dict[str, str]:
    """Read labels, each by its name; a WORD has an empty value. Raises `UsageError`."""
    pairs = (word.partition("=") for word in words)
    labels = {name: value for name, _, value in pairs}
    check_labels(labels)
    return labels


def check_labels(labels: Mapping[str, str]) -> None:
    """Raise `UsageError` for labels that no campaign can have."""
    if len(labels) > MOST_LABELS:
        raise UsageError(f"{len(labels)} labels: a campaign has at most {MOST_LABELS}")
    for name, value in labels.items():
        if not re.fullmatch(NAME_PATTERN, name):
            raise UsageError(
                f"label {name!r}: expected a word of letters, digits and . _ + - (at most 100), or NAME=VALUE"
            )
        if len(value) > LONGEST_LABEL or not value.isprintable():
            raise UsageError(
                f"label {name!r}: its value has more than {LONGEST_LABEL} characters, or unprintable ones"
            )


def label_text(labels: Mapping[str, str]) -> str:
    """`nightly, branch=main`."""
    return ", ".join(f"{name}={value}" if value else name for name, value in labels.items())


def has_label(labels: Mapping[str, str], word: str) -> bool:
    """Whether a campaign with these labels is meant by WORD (any value) or NAME=VALUE."""
    name, given, value = word.partition("=")
    return name in labels and (not given or labels[name] == value)
