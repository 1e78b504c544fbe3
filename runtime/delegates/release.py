"""The option `version` of the delegates that this project brings: the commit of the code that runs."""

from collections.abc import Mapping
from typing import Any, Final

from runtime.common.installation import CURRENT, DISTRIBUTION, own_commit
from runtime.delegates.descriptor import DelegateDescriptor, Option
from runtime.errors import DelegateError

RELEASE: Final = (DISTRIBUTION, "runtime")
"""This project's distribution, and the field of results with the code that ran."""

VERSION: Final = "version"


def commit_option() -> Option:
    """Declare the option `version`, which the farm fulfils by what a process imports."""
    return Option(
        value_type=str,
        help="The commit of this farm that runs: `current`, or one whose wheel the operator allowed.",
    )


def without_commit(descriptor: DelegateDescriptor, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a delegate's options without the commit, which this process has.

    Raises `DelegateError` where it runs another one.
    """
    if descriptor.release != RELEASE:
        return dict(options)
    wanted = options.get(VERSION)
    if wanted not in (None, CURRENT, own_commit()):
        raise DelegateError(
            f"{descriptor.name}: commit {wanted} was asked for, and this process runs "
            f"{own_commit() or CURRENT}; a campaign measures another one, whose wheel the machine's operator "
            "allows (docs/lab.md)"
        )
    return {name: value for name, value in options.items() if name != VERSION}
