"""The operators of the CPU path, one family per module; importing the package registers them all.

In this package a *level* is a quantised value: the integer q of real = scale * (q - zero_point).
"""

import pkgutil
from importlib import import_module

from runtime.ops.support.registry import SPECS

__all__ = ["SPECS"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
