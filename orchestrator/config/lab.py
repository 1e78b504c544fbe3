"""Reads the settings that make a farm a lab: broker, database, times. Read once and passed on as a value."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final

from orchestrator.config.address import KEYS as ADDRESS_KEYS
from orchestrator.config.address import Address
from orchestrator.config.home import FarmHome
from orchestrator.config.limits import StoreLimits
from orchestrator.config.recovery import Recovery
from orchestrator.errors import UsageError

DEFAULT_KEY_PREFIX: Final = "farm:"
DEFAULT_REGISTRY: Final = "https://registry.npmjs.org"

DEFAULT_USER_CELLS: Final = 10_000
"""Cells of one user that may wait. Chosen: those of one campaign of the largest size (`matrix.MAX_CELLS`).
With more, a user's mistake fills the database; fewer refuse a campaign that is allowed.
"""

DEFAULT_REFERENCE_AGENTS: Final = 2
"""Agents that must have made the same reference, bit for bit, before the farm hands it on. With one, a single
agent could decide over the verdicts of all others; more cost each a reference of its own.
"""

_TEXTS = (
    "broker_url", "agent_broker_url", "broker_ca", "database_url", "key_prefix", "npm_registry",
    "url", "token", *ADDRESS_KEYS,
)  # fmt: skip
_SCHEMES: Final[Mapping[str, tuple[str, ...]]] = {
    "broker_url": ("redis", "rediss", "redis+socket"),
    "agent_broker_url": ("redis", "rediss", "redis+socket"),
    "database_url": ("postgresql", "postgres", "sqlite"),
    "npm_registry": ("https",),
    "url": ("http", "https"),
}
_SERVERS_OWN: Final = ("broker_url", "database_url", "endpoint", "listen")
"""Settings of the server and of machines that have the database's password: they go without `url`."""
_LONGEST_S = 7 * 86_400.0
"""The longest period in seconds: a week. Chosen: more is a mistake, such as a number of milliseconds."""


@dataclass(frozen=True, slots=True)
class LabTimes:
    """Every period and limit of a lab, in seconds. Set with `FARM_<NAME>`, or under `[times]` in `farm.toml`.

    heartbeat_s    an agent's sign of life, per running attempt and per idle agent
    suspect_s      silence after which an agent or attempt is shown as suspect
    lost_s         silence after which an attempt is lost and its device's epoch grows
    patience_s     how long an agent has after its hello to report the attempts it had
    sweep_s        how often steering requests of other terminals (cancel, pause, drain) are looked for
    reaper_s       how often the reaper looks for silence and deadlines
    backoff_s      the longest pause between two tries to reach the broker
    watchdog_s     a link whose own message does not return through the broker for so long is restarted
    resend_s       a result without a receipt for so long is sent again
    """

    heartbeat_s: float = 10.0
    suspect_s: float = 60.0
    lost_s: float = 300.0
    patience_s: float = 10.0
    sweep_s: float = 1.0
    reaper_s: float = 5.0
    backoff_s: float = 30.0
    watchdog_s: float = 60.0
    resend_s: float = 30.0


@dataclass(frozen=True, slots=True)
class LabConfig:
    """The settings that make a farm a lab. With none set: one machine, no broker, SQLite under `FARM_HOME`.

    `broker_url`: Redis, with its password; jobs go to agents elsewhere and `farm lab serve` schedules.
    `agent_broker_url`: how agents reach it, None: the same way; `broker_ca`: PEM file of the CA that signed
    its certificate, None: the system's.
    `database_url`: `postgresql://...`; None: SQLite. `address`: where `farm lab serve` answers over HTTP;
    None: nowhere, agents share the farm's store. `limits`: how much is stored. `allow_private`: https:
    sources may lie on private addresses. `npm_registry`: of npm: sources. `user_token`: this is a user's
    machine, which has nothing of the farm but the address of its endpoint and this token. `user_cells`: how
    many cells of one user of the endpoint may wait. `reference_agents`: how many agents must have made the
    same reference before others judge by it; 1: every enrolled agent is trusted with that. `recovery`: the
    operator's command for a lost device, or None.
    """

    broker_url: str | None = field(default=None, repr=False)
    database_url: str | None = field(default=None, repr=False)
    agent_broker_url: str | None = field(default=None, repr=False)
    broker_ca: Path | None = None
    key_prefix: str = DEFAULT_KEY_PREFIX
    times: LabTimes = LabTimes()
    address: Address | None = None
    limits: StoreLimits = field(default_factory=StoreLimits)
    allow_private: bool = False
    npm_registry: str = DEFAULT_REGISTRY
    user_token: str | None = field(default=None, repr=False)
    user_cells: int = DEFAULT_USER_CELLS
    reference_agents: int = DEFAULT_REFERENCE_AGENTS
    recovery: Recovery | None = None

    @property
    def is_lab(self) -> bool:
        """Whether jobs travel through a broker."""
        return self.broker_url is not None

    @property
    def broker_urls(self) -> dict[str, str]:
        """The addresses of the broker that are set, the farm's own and the agents', by their variables."""
        urls = {"FARM_BROKER_URL": self.broker_url, "FARM_AGENT_BROKER_URL": self.agent_broker_url}
        return {name: url for name, url in urls.items() if url}

    @classmethod
    def load(cls, home: FarmHome, environment: Mapping[str, str] = os.environ) -> "LabConfig":
        """Read the environment first, then `farm.toml`, then the defaults. Raises `UsageError`."""
        path = _file(home, environment)
        given = {} if path is None else _read(path)
        times = _table("times", given.pop("times", {}), path)
        store = _table("store", given.pop("store", {}), path)
        recovery = Recovery.read(_table("recovery", given.pop("recovery", {}), path), str(path))
        allow_private = _flag("allow_private", given, environment, path)
        user_cells = _count("user_cells", given, environment, path, DEFAULT_USER_CELLS)
        reference_agents = _count("reference_agents", given, environment, path, DEFAULT_REFERENCE_AGENTS)
        texts: dict[str, str] = {}
        for name in _TEXTS:
            value = environment.get(f"FARM_{name.upper()}") or given.pop(name, "")
            if not isinstance(value, str):
                raise UsageError(f"{path}: {name} must be a text, not {value!r}")
            if value:
                texts[name] = value
            # Also where the environment took precedence: keys that are left at the end are unknown.
            given.pop(name, None)
        if given:
            known = ", ".join(
                (*_TEXTS, "allow_private", "user_cells", "reference_agents", "times", "store", "recovery")
            )
            raise UsageError(f"{path}: unknown key {min(given)!r}; known: {known}")
        _check_urls(texts)
        return cls(
            broker_url=texts.get("broker_url"),
            database_url=texts.get("database_url"),
            agent_broker_url=texts.get("agent_broker_url"),
            broker_ca=Path(texts["broker_ca"]).expanduser() if "broker_ca" in texts else None,
            key_prefix=texts.get("key_prefix", DEFAULT_KEY_PREFIX),
            times=_times(times, environment, path),
            address=_address(texts),
            limits=StoreLimits.read(store, environment, str(path)),
            allow_private=allow_private,
            npm_registry=texts.get("npm_registry", DEFAULT_REGISTRY).rstrip("/"),
            user_token=texts.get("token"),
            user_cells=user_cells,
            reference_agents=reference_agents,
            recovery=recovery,
        )


def _address(texts: Mapping[str, str]) -> Address | None:
    """Read the address where this process, or on a user's machine the farm, serves. Raises `UsageError`."""
    url, token = texts.get("url"), texts.get("token")
    if url is None and token is None:
        return Address.read(texts)
    if url is None or token is None:
        raise UsageError("FARM_URL and FARM_TOKEN go together, but only one of them is set")
    for name in _SERVERS_OWN:
        if name in texts:
            raise UsageError(
                f"FARM_URL and FARM_{name.upper()} are both set: a user's machine needs FARM_URL and "
                "FARM_TOKEN alone, the server neither of them"
            )
    return Address.of_user(url, token, texts.get("tls_ca"))


def _file(home: FarmHome, environment: Mapping[str, str]) -> Path | None:
    """`$FARM_CONFIG`, else `farm.toml` in the farm's home, else in the user's configuration folder."""
    explicit = environment.get("FARM_CONFIG")
    if explicit:
        return Path(explicit).expanduser()
    settings = environment.get("XDG_CONFIG_HOME") or "~/.config"
    candidates = (home.root / "farm.toml", Path(settings).expanduser() / "farm" / "farm.toml")
    return next((path for path in candidates if path.is_file()), None)


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; see FARM_CONFIG") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


def _table(name: str, value: object, path: Path | None) -> dict[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be a table: [{name}]")
    return value


def _count(
    name: str, given: dict[str, object], environment: Mapping[str, str], path: Path | None, default: int
) -> int:
    """Read a whole number above 0. Raises `UsageError`."""
    variable = f"FARM_{name.upper()}"
    own = given.pop(name, default)
    value = environment.get(variable) or own
    if isinstance(value, bool) or not str(value).isdecimal() or not 0 < int(str(value)) < 1 << 31:
        where = variable if environment.get(variable) else f"{path}: {name}"
        raise UsageError(f"{where}: {value!r} is not a whole number above 0")
    return int(str(value))


def _flag(name: str, given: dict[str, object], environment: Mapping[str, str], path: Path | None) -> bool:
    variable = f"FARM_{name.upper()}"
    own = given.pop(name, False)
    text = environment.get(variable)
    if text:
        if text not in ("0", "1"):
            raise UsageError(f"{variable}: {text!r} is neither 0 nor 1")
        return text == "1"
    if not isinstance(own, bool):
        raise UsageError(f"{path}: {name} must be true or false, not {own!r}")
    return own


def _times(given: Mapping[str, object], environment: Mapping[str, str], path: Path | None) -> LabTimes:
    names = [entry.name for entry in fields(LabTimes)]
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise UsageError(f"{path}: [times]: unknown key {unknown[0]!r}; known: {', '.join(names)}")
    chosen = {}
    for name in names:
        variable = f"FARM_{name.upper()}"
        value = environment.get(variable) or given.get(name)
        if value is not None:
            chosen[name] = _seconds(variable if environment.get(variable) else f"{path}: {name}", value)
    return LabTimes(**chosen)


def _seconds(where: str, value: object) -> float:
    try:
        seconds = float(value)  # type: ignore[arg-type]  # what float() refuses is refused below
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < _LONGEST_S:
        raise UsageError(f"{where}: {value!r} is not a number of seconds above 0")
    return seconds


def _check_urls(texts: Mapping[str, str]) -> None:
    """Refuse schemes that no part of the farm understands."""
    # A URL may hold a password: the error names its scheme alone.
    for name, schemes in _SCHEMES.items():
        scheme = texts[name].partition(":")[0] if name in texts else schemes[0]
        if scheme not in schemes:
            raise UsageError(f"FARM_{name.upper()}: unknown scheme {scheme!r}; known: {', '.join(schemes)}")
