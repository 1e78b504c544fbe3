"""Keeps the result of a check of a device's operators in its cache, for the kernels that were checked."""

import hashlib
import json
from typing import Any

from runtime.delegates.abilities import Conformance
from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.keep.cache import Cache, own_digest

_KIND = "conformance"


def kept_conformance(device: Capabilities, cache: Cache) -> Conformance | None:
    """Return the result kept for the device; None if there is none, or if the delegate has changed since."""
    content = cache.read(_KIND, _key(device))
    if content is None:
        return None
    known: dict[str, Any] = json.loads(content)
    if known["delegate"] != own_digest():
        return None
    return Conformance(tuple(known["agreed"]), known["wrong"])


def keep_conformance(device: Capabilities, cache: Cache, found: Conformance) -> None:
    """Keep what a check of the device found, in place of what an earlier one did."""
    content = {"delegate": own_digest(), "agreed": found.agreed, "wrong": dict(found.wrong)}
    cache.write(_KIND, _key(device), json.dumps(content).encode())


def differences(found: Conformance | None) -> dict[str, str]:
    """Operator → why it is not delegated to the device."""
    wrong = {} if found is None else found.wrong
    return {
        name: f"a check of this device found that it differs from the CPU path ({how}); "
        "`farm-agent check` checks again"
        for name, how in wrong.items()
    }


def _key(device: Capabilities) -> str:
    # A device of another class gets other kernels, of which the check says nothing.
    return hashlib.sha256(f"{device.key}|{device.device_class.value}".encode()).hexdigest()
