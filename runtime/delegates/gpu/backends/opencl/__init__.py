"""OpenCL: devices, programs, recordings. `cl` is pyopencl, imported at its first use: others do without."""

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyopencl as cl
else:

    class _OnDemand:
        """Stands for the package."""

        @cached_property
        def _package(self) -> Any:
            # Kept, as recordings that are closed when Python ends can import nothing any more.
            import pyopencl  # noqa: PLC0415  # the import that is put off

            return pyopencl

        def __getattr__(self, name: str) -> Any:
            return getattr(self._package, name)

    cl = _OnDemand()

__all__ = ["cl"]
