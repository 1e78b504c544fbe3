"""`farm skeleton`: share a model without its weights, and make one of such a file again."""

from __future__ import annotations

from runtime.tools.skeleton.calibrate import calibrated
from runtime.tools.skeleton.strip import Stripped, strip

__all__ = ["Stripped", "calibrated", "strip"]
