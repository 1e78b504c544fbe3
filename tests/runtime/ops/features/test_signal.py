"""Spectra and the parts of complex numbers against LiteRT's reference kernels."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.model.schema import BuiltinOperator as Op
from tests.oracle import run_litert
from tests.runtime.models import Arg, Builder, Out, const
from tests.runtime.ops.cases import Case, case, check, random, run_ours

NUMBERS = np.random.default_rng(5).normal(0, 2, (2, 9)).astype(np.float32)
SPECTRA = [
    case("rfft2d", Op.RFFT2D, [random(2, 4, 8), const([4, 8], np.int32)], [Out(np.complex64)]),
    case("rfft2d_padded", Op.RFFT2D, [random(3, 5), const([8, 4], np.int32)], [Out(np.complex64)]),
    case("rfft2d_tall", Op.RFFT2D, [random(2, 3, 19, 5), const([32, 8], np.int32)], [Out(np.complex64)]),
    case("rfft2d_one", Op.RFFT2D, [random(2, 3, 4), const([1, 2], np.int32)], [Out(np.complex64)]),
]


PARTS = [
    case(
        f"{opcode.name}_{dtype.__name__}",
        opcode,
        [Arg((NUMBERS[0] + 1j * NUMBERS[1]).astype(dtype))],
        [Out(part)],
    )
    for opcode in (Op.REAL, Op.IMAG, Op.COMPLEX_ABS)
    for dtype, part in ((np.complex64, np.float32), (np.complex128, np.float64))
]


@pytest.mark.parametrize("case", SPECTRA, ids=str)
def test_a_spectrum_is_that_of_litert(case, backend):
    (theirs,), (ours,) = run_litert(case.model, case.inputs), run_ours(case, backend)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("case", PARTS, ids=str)
def test_parts_of_complex_numbers_match_litert(case, backend):
    check(case, backend)


def short_time_spectra() -> Case:
    """Magnitudes of windows, as models of sound have them: the spectrum loses an axis on the way."""
    build, windows = Builder(), random(5, 1, 512).value
    x, spectra = build.input(np.float32, windows.shape), build.tensor(np.complex64, (5, 1, 257))
    flat, y = build.tensor(np.complex64, (5, 257)), build.tensor(np.float32, (5, 257))
    build.operator(Op.RFFT2D, [x, build.constant(np.array([1, 512], np.int32))], [spectra])
    build.operator(Op.RESHAPE, [spectra, build.constant(np.array([5, 257], np.int32))], [flat])
    build.operator(Op.COMPLEX_ABS, [flat], [y])
    return Case("short_time_spectra", build.write([y]), (windows,))


def test_the_magnitudes_of_windows_match_litert(backend):
    check(short_time_spectra(), backend)
