"""`farm skeleton`: a model without its weights, to share, and a model restored from it."""

from __future__ import annotations

from runtime.tools.skeleton.calibrate import calibrated
from runtime.tools.skeleton.strip import Stripped, strip

__all__ = ["Stripped", "calibrated", "strip"]
