"""Measures the installed size of a delegate on this host, in bytes."""

import json
from collections.abc import Callable
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from agent.runner.probe.host import sources
from agent.wire.measurement import Installed
from runtime.common.installation import DISTRIBUTION, WHEEL_PACKAGE
from runtime.delegates.registry import delegate_descriptor, delegate_distribution


class _UnknownSizeError(Exception):
    """A distribution whose files are not listed."""


def installed(kind: str, release_of: Callable[[str], Path | None] = lambda _: None) -> Installed:
    """Return the bytes of the delegate's own files and of the packages that it names; without drivers, Python
    and numpy, which every delegate needs. Of this project's distribution, which brings several delegates,
    only the files that the delegate executes count. `release_of`: the folder of a package that is measured in
    place of the installed one. Raises `DelegateError` as `delegate_descriptor`.
    """
    descriptor = delegate_descriptor(kind)
    try:
        brings = delegate_distribution(kind)
        if brings is None or brings.name == DISTRIBUTION:
            release = release_of(DISTRIBUTION)
            root = None if release is None else release / WHEEL_PACKAGE / "runtime"
            own = sum(path.stat().st_size for path in sources(descriptor.executes, root))
        else:
            own = _bytes_of(brings)
        return Installed(
            bytes=own + sum(_bytes_of(_found(name, release_of(name))) for name in descriptor.packages)
        )
    except PackageNotFoundError as error:
        return Installed(note=f"the package {error.name} is not installed")
    except (_UnknownSizeError, OSError) as error:
        return Installed(note=str(error))


def _found(name: str, folder: Path | None) -> Distribution:
    return distribution(name) if folder is None else next(iter(distributions(name=name, path=[str(folder)])))


def _bytes_of(package: Distribution) -> int:
    """Return the size of all files of a distribution."""
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        raise _UnknownSizeError(f"the package {package.name} is installed as a link to its sources")
    if package.files is None:
        raise _UnknownSizeError(f"the package {package.name} does not list its files")
    found = {Path(str(package.locate_file(file))) for file in package.files}
    return sum(path.stat().st_size for path in found if path.is_file())
