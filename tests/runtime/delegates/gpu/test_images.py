"""Pictures in OpenCL images as inputs: the device's copy holds what a copy by the host holds."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from runtime.api.tensor_buffer import TensorBuffer
from runtime.errors import DelegateError, StatusError
from runtime.model.schema import BuiltinOperator as Op
from tests.runtime.delegates.gpu.caller_models import on_gpu
from tests.runtime.models import Builder

HEIGHT, WIDTH = 5, 7
KINDS = {
    "float": (cl.channel_type.FLOAT, np.float32),
    "half": (cl.channel_type.HALF_FLOAT, np.float16),
    "unorm8": (cl.channel_type.UNORM_INT8, np.uint8),
    "uint8": (cl.channel_type.UNSIGNED_INT8, np.uint8),
}


def pixels(dtype: type, seed: int = 1) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.integers(0, 255, (HEIGHT, WIDTH, 4)).astype(dtype)


def image(context: cl.Context, kind: cl.channel_type, content: np.ndarray) -> cl.Image:
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    size = content.shape[1], content.shape[0]
    return cl.create_image(context, flags, cl.ImageFormat(cl.channel_order.RGBA, kind), size, hostbuf=content)


@pytest.fixture(scope="module")
def doubling(tmp_path_factory):
    """Compile a model of [1, H, W, 3] that adds its input to itself."""
    b = Builder()
    x, y = b.input(np.float32, (1, HEIGHT, WIDTH, 3)), b.tensor(np.float32, (1, HEIGHT, WIDTH, 3))
    b.operator(Op.ADD, [x, x], [y])
    with on_gpu(b.write([y]), cache_dir=str(tmp_path_factory.mktemp("cache"))) as model:
        yield model


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_holds_what_a_host_copy_holds(doubling, kind, channels):
    channel_type, dtype = KINDS[kind]
    content = pixels(dtype)
    found = TensorBuffer.create_from_cl_image(image(doubling.opencl_context, channel_type, content), channels)
    expected = content[..., :channels]
    assert found.get_tensor_details() == {
        "dtype": np.dtype(dtype).name, "shape": [1, HEIGHT, WIDTH, channels]
    }  # fmt: skip
    read = found.read(expected.size, dtype)
    np.testing.assert_array_equal(read.reshape(expected.shape), expected)


def test_a_model_runs_on_one_picture_after_another(doubling):
    target = doubling.create_output_buffers(0)[0]
    first, second = pixels(np.float32), pixels(np.float32, seed=2)
    context = doubling.opencl_context
    source = TensorBuffer.create_from_cl_image(image(context, cl.channel_type.FLOAT, first), 3)
    for content in (first, second):
        if content is second:
            source.copy_from_cl_image(image(context, cl.channel_type.FLOAT, second))
        event = doubling.run_async([source], [target])
        assert event.copies == ()
        np.testing.assert_array_equal(
            target.read(HEIGHT * WIDTH * 3, np.float32).reshape(HEIGHT, WIDTH, 3), 2 * content[..., :3]
        )


def test_other_pictures_are_refused_with_the_reason(doubling):
    context = doubling.opencl_context
    content = pixels(np.uint8)
    bgra = cl.ImageFormat(cl.channel_order.BGRA, cl.channel_type.UNORM_INT8)
    other = cl.create_image(context, cl.mem_flags.READ_ONLY, bgra, (WIDTH, HEIGHT))
    with pytest.raises(DelegateError, match="an image of BGRA in UNORM_INT8 is no tensor; make one of RGBA"):
        TensorBuffer.create_from_cl_image(other)
    with pytest.raises(DelegateError, match="not ndarray"):
        TensorBuffer.create_from_cl_image(content)
    fine = image(context, cl.channel_type.UNORM_INT8, content)
    with pytest.raises(DelegateError, match="1 to 4 channels, not 5"):
        TensorBuffer.create_from_cl_image(fine, 5)
    bound = TensorBuffer.create_from_cl_image(fine)
    with pytest.raises(StatusError, match=r"the picture is uint8 .*make one for it"):
        bound.copy_from_cl_image(image(context, cl.channel_type.UNORM_INT8, content[:-1]))
    with pytest.raises(DelegateError, match="another context"):
        bound.copy_from_cl_image(image(cl.Context(context.devices), cl.channel_type.UNORM_INT8, content))
    with pytest.raises(StatusError, match="make one for it"):
        TensorBuffer.create_managed(np.uint8, (1, HEIGHT, WIDTH, 4)).copy_from_cl_image(fine)
