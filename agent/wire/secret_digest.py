"""What is stored instead of a secret; without any package of a lab, which a user's machine does not have."""

from __future__ import annotations

import hashlib


def digest(secret: str) -> str:
    """Return the sha256 (hex) that is stored instead of a secret; random secrets need no salt."""
    return hashlib.sha256(secret.encode()).hexdigest()
