"""Pictures in a caller's OpenCL images as tensors: the device copies their pixels into a buffer."""

from typing import Any

import numpy as np

from runtime.delegates.gpu.backends.opencl import cl
from runtime.delegates.gpu.backends.opencl.device import mapped_errors
from runtime.delegates.gpu.backends.opencl.storage import BufferStorage
from runtime.delegates.storage import ROOM
from runtime.errors import DelegateError

_CHANNELS = 4
"""Channels of a pixel of an image in RGBA."""


def tensor_of(image: object, channels: int) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return dtype and shape `[1, H, W, channels]` of a picture's first channels.

    Pixels of float32 and float16 are those numbers, of eight bits their levels, uint8.
    Raises `DelegateError` for anything but a two-dimensional `pyopencl.Image` of RGBA in one of these types.
    """
    if not isinstance(image, cl.Image) or image.type != cl.mem_object_type.IMAGE2D:
        raise DelegateError(f"a picture is a two-dimensional pyopencl.Image, not {type(image).__name__}")
    levels: dict[Any, type[Any]] = {
        cl.channel_type.UNORM_INT8: np.uint8,
        cl.channel_type.UNSIGNED_INT8: np.uint8,
    }
    kinds: dict[Any, type[Any]] = {
        cl.channel_type.FLOAT: np.float32,
        cl.channel_type.HALF_FLOAT: np.float16,
        **levels,
    }
    told: Any = image.format  # its numbers are enumerations of pyopencl, whose stubs do not say so
    order, kind = told.channel_order, told.channel_data_type
    if order != cl.channel_order.RGBA or kind not in kinds:
        names: Any = cl.channel_order, cl.channel_type
        named = f"{names[0].to_string(order)} in {names[1].to_string(kind)}"
        raise DelegateError(
            f"an image of {named} is no tensor; make one of RGBA in FLOAT, HALF_FLOAT, UNORM_INT8 "
            "or UNSIGNED_INT8"
        )
    if not 1 <= channels <= _CHANNELS:
        raise DelegateError(f"a pixel of RGBA has 1 to {_CHANNELS} channels, not {channels}")
    return np.dtype(kinds[kind]), (1, image.height, image.width, channels)


def buffer_for(image: cl.Image, size: int) -> BufferStorage:
    """Return a buffer of `size` bytes in the image's context, with room for the device's vectors behind."""
    with mapped_errors("making a buffer for a picture"):
        return BufferStorage(cl.Buffer(image.context, cl.mem_flags.READ_WRITE, size + ROOM))


def copy_picture(image: cl.Image, target: BufferStorage, channels: int) -> cl.Event:
    """Have the device copy the first channels of each pixel; return the event of that.

    Raises `DelegateError` for an image of another context.
    """
    if image.context != target.context:
        raise DelegateError("the image is of another context than the buffer; make both in the model's")
    dtype, shape = tensor_of(image, channels)
    pixels, pixel_bytes = shape[1] * shape[2], _CHANNELS * dtype.itemsize
    with mapped_errors("copying a picture"):
        queue = cl.CommandQueue(target.context)
        whole, flags = channels == _CHANNELS, cl.mem_flags.READ_WRITE
        staged = target.buffer if whole else cl.Buffer(target.context, flags, pixels * pixel_bytes)
        enqueue_copy: Any = cl.enqueue_copy  # the stubs have not all its forms
        copied: cl.Event = enqueue_copy(
            queue, staged, image, offset=0, origin=(0, 0), region=(image.width, image.height)
        )
        if not whole:
            kept_bytes = channels * dtype.itemsize
            # A row of the copy is the kept part of one pixel.
            copied = enqueue_copy(
                queue, target.buffer, staged, src_origin=(0, 0, 0), dst_origin=(0, 0, 0),
                region=(kept_bytes, pixels, 1), src_pitches=(pixel_bytes,), dst_pitches=(kept_bytes,),
            )  # fmt: skip
        # Another queue may only wait for the event once it has been flushed (clFlush).
        queue.flush()
    return copied
