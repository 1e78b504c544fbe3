"""The operators of the CPU path, one family per module; importing the package registers them all."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from runtime.ops.spec import SPECS

__all__ = ["SPECS"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
