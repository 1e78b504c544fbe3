"""OpenCL: devices, programs, recordings. `cl` is pyopencl, imported at its first use: others do without."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyopencl as cl
else:

    class _OnDemand:
        """Stands for the package."""

        def __getattr__(self, name: str) -> Any:
            import pyopencl  # noqa: PLC0415  # the import that is put off

            return getattr(pyopencl, name)

    cl = _OnDemand()

__all__ = ["cl"]
