"""The error of a data set that cannot be used."""

from __future__ import annotations

from runtime.errors import FarmRuntimeError


class DataError(FarmRuntimeError, ValueError):
    """A file of the data set, or a model that does not fit it; the text names the file and the reason."""
