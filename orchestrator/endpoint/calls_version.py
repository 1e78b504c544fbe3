"""What the two ends of users' calls must share, and nothing that only a server has installed."""

from __future__ import annotations

from typing import Final

VERSION: Final = 1
"""Version of the calls' form. It grows where a machine with the former one would misunderstand an answer."""
