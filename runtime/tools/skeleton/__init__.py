"""`farm model skeleton`: a model without its weights, to share, and a model restored from it."""

from runtime.tools.skeleton.calibrate import calibrated
from runtime.tools.skeleton.strip import Stripped, strip

__all__ = ["Stripped", "calibrated", "strip"]
