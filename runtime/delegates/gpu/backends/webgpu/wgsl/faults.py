"""The error for text outside the portable subset, with its place in a kernel's file."""

from runtime.errors import DelegateError


class OutsideSubsetError(DelegateError):
    """A kernel has what the portable subset of OpenCL C does not; the text names file, line and construct."""

    def __init__(self, coordinate: object, what: str) -> None:
        file, line = getattr(coordinate, "file", ""), getattr(coordinate, "line", 0)
        place = f"{file}:{line}" if file else "a kernel"
        super().__init__(f"gpu delegate: {place}: {what} is outside the portable subset of OpenCL C")
