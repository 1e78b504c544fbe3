"""Complex numbers and spectra: RFFT2D, REAL, IMAG, COMPLEX_ABS."""

import numpy as np

from runtime.ops.movement.copies import copy
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator
from runtime.ops.support.shapes import same_shape

_COMPLEX = (TensorType.COMPLEX64, TensorType.COMPLEX128)
_PARTS = {TensorType.COMPLEX64: TensorType.FLOAT32, TensorType.COMPLEX128: TensorType.FLOAT64}


def _parts(op: OpContext) -> tuple[Array, Array]:
    if op.output().type is not _PARTS[op.input().type]:
        raise op.unsupported(f"{op.output().type.name} from {op.input().type.name}")
    return op.read(0), op.write()


@operator(Op.REAL, infer=same_shape, types=_COMPLEX)
def real(op: OpContext) -> Kernel:
    """REAL: the real parts, float32 of complex64, float64 of complex128."""
    x, y = _parts(op)
    return copy(y, x.real)


@operator(Op.IMAG, infer=same_shape, types=_COMPLEX)
def imag(op: OpContext) -> Kernel:
    """IMAG: the imaginary parts, float32 of complex64, float64 of complex128."""
    x, y = _parts(op)
    return copy(y, x.imag)


@operator(Op.COMPLEX_ABS, infer=same_shape, types=_COMPLEX)
def complex_abs(op: OpContext) -> Kernel:
    """COMPLEX_ABS: the magnitudes, float32 of complex64, float64 of complex128."""
    x, y = _parts(op)
    return lambda: np.abs(x, out=y)


def rfft2d_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [.., height, width / 2 + 1] of the lengths in input 1, powers of two (`rfft2d.cc`)."""
    op.require(TensorType.INT32, i=1)
    shape, lengths = op.input().shape, op.integers(1, "fft length")
    if len(shape) < 2 or len(lengths) != 2 or not all(n > 0 and n & (n - 1) == 0 for n in lengths):
        raise op.error(f"fft lengths {list(lengths)} for shape {list(shape)}: two powers of two are needed")
    return ((*shape[:-2], lengths[0], lengths[1] // 2 + 1),)


@operator(Op.RFFT2D, infer=rfft2d_shape, types=(TensorType.FLOAT32,))
def rfft2d(op: OpContext) -> Kernel:
    """RFFT2D: the spectrum of real images, cropped or padded with zeros to the lengths; complex64.

    It is computed in float64, as `rfft2d.cc` does, and rounded once.
    """
    if op.output().type is not TensorType.COMPLEX64:
        raise op.unsupported(f"a spectrum of type {op.output().type.name}")
    x, y, lengths = op.read(0), op.write(), op.integers(1, "fft length")
    return lambda: np.copyto(y, np.fft.rfft2(x.astype(np.float64), lengths), casting="same_kind")
