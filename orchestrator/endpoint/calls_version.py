"""The constants that both ends of users' calls share; imports nothing that only a server has installed."""

from typing import Final

VERSION: Final = 1
"""Version of the calls' form. It grows where a machine with the former one would misunderstand an answer."""
