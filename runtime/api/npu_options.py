"""LiteRT's options of NPUs by name: a script that imports them starts, and is refused where it uses one."""

from typing import Any, Final, NoReturn

REFUSAL: Final = (
    "this runtime drives no NPU: give hardware_accelerators CPU or GPU and their options, or run "
    "the model on the NPU with LiteRT itself"
)


class _Refused(type):
    """The kind of a class that cannot be made and has no members."""

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        """Raise ValueError with what to use in its place."""
        raise ValueError(f"{cls.__name__}: {REFUSAL}")

    def __getattr__(cls, name: str) -> NoReturn:
        """Raise AttributeError with what to use in its place."""
        raise AttributeError(f"{cls.__name__}.{name}: {REFUSAL}")


def refused(name: str) -> type:
    """Return what stands for a class of LiteRT's."""
    return _Refused(name, (), {})
