"""Digests a secret for storage; needs no package of a lab, because users' machines have none."""

import hashlib


def digest(secret: str) -> str:
    """Return the sha256 (hex) that is stored instead of a secret; random secrets need no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()
