"""The environment of the programs that the farm starts: what each needs, and none of the farm's secrets.

The agent of a farm of one machine gets the list of `agent.wire.environment`.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SYSTEM: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TZ", "LD_LIBRARY_PATH",
    "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES",
)  # fmt: skip
"""Where programs, libraries and temporary files are, and the language of messages."""

_PIP: Final = (
    "PIP_CONFIG_FILE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS",
    "PIP_TRUSTED_HOST", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_PROXY", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT",
    "PIP_CACHE_DIR", "PIP_NO_CACHE_DIR", "PIP_KEYRING_PROVIDER",
    "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME", "NETRC",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
"""Which index pip asks, and how it is reached. Left out are those that name another interpreter
(`PIP_PYTHON`), files to be written, or something else to install.
"""

_POSTGRESQL: Final = (
    "PGPASSFILE", "PGPASSWORD", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR", "PGSSLMODE", "PGSSLROOTCERT",
    "PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGSSLCRLDIR", "PGREQUIRESSL", "PGCHANNELBINDING",
    "PGCONNECT_TIMEOUT", "PGGSSENCMODE", "PGKRBSRVNAME", "PGHOST", "PGHOSTADDR", "PGPORT", "PGUSER",
    "PGOPTIONS", "PGTZ", "KRB5CCNAME", "KRB5_CONFIG",
)  # fmt: skip
"""What the client library of PostgreSQL reads, as the farm's own connection does."""

_POSTGRESQL_FILES: Final = (
    "PGPASSFILE", "PGSERVICEFILE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGSSLCRLDIR",
)  # fmt: skip
"""Those that may name a file relative to the farm's own folder."""


def for_pip(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of `pip download`: an index and its credentials as the user has set them."""
    return _chosen(inherited, (*_SYSTEM, *_PIP))


def for_postgresql(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of PostgreSQL's programs, which run in another folder than this process."""
    found = _chosen(inherited, (*_SYSTEM, *_POSTGRESQL))
    return found | {name: absolute(found[name]) for name in _POSTGRESQL_FILES if name in found}


def for_recovery(inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of the operator's command that recovers a device."""
    return _chosen(inherited, _SYSTEM)


def find_program(name: str) -> str | None:
    """Return the path of a program, or None; relative folders of `PATH` are not searched."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    # Else a file of that name in the present folder could run.
    return shutil.which(name, path=os.pathsep.join(part for part in folders if Path(part).is_absolute()))


def absolute(file: str) -> str:
    """Return the absolute path of a file; `system`, which stands for the system's CAs, stays as it is."""
    return file if file in ("", "system") else str(Path(file).absolute())


def _chosen(inherited: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: inherited[name] for name in names if name in inherited}
