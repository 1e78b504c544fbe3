"""Generates the ids of rows."""

import secrets
import time
import uuid

from orchestrator.policy.fingerprint import digest


def campaign_id() -> str:
    """10 random hex digits."""
    return secrets.token_hex(5)


def cell_id(campaign: str, key: str) -> str:
    """16 hex digits, evenly spread: a short prefix is mostly unique."""
    return digest({"campaign": campaign, "key": key})[:16]


def attempt_id() -> str:
    """Generate a UUID of version 7 (RFC 9562): 48 bits of milliseconds, 74 random ones; sorts by time."""
    # Sorted by time, new rows lie together at the end of the index; random ones would spread over all of it.
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & (2**48 - 1)) << 80 | secrets.randbits(80)
    # Bits 76 to 79 hold the version, bits 62 and 63 the variant (binary 10).
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
