"""MediaPipe's custom operator Resampler: an image read at positions between its pixels, float32.

Inputs: image [N, H, W, C], positions (x, y) [N, H, W, 2]; output [N, H, W, C]. What lies outside of the image
counts as zero (`mediapipe/util/tflite/operations/resampler.cc`).
"""

import numpy as np

from runtime.ops.support import Kernel, OpContext, Shape, TensorType
from runtime.ops.support.registry import custom_operator
from runtime.ops.support.shapes import image_shape


def _shape(op: OpContext) -> tuple[Shape, ...]:
    shape, positions = image_shape(op), op.input(1).shape
    if positions != (*shape[:3], 2):
        raise op.error(f"positions of {list(positions)} for an image of {list(shape)}")
    return (shape,)


@custom_operator("Resampler", infer=_shape)
def resampler(op: OpContext) -> Kernel:
    """Compute the weighted mean of the four pixels around each position; zero beyond one pixel outside."""
    for i in range(2):
        op.require(TensorType.FLOAT32, i=i)
    image, positions, y = op.read(0), op.read(1), op.write()
    _, height, width, _ = image.shape
    edged = op.temporary((image.shape[0], height + 2, width + 2, image.shape[3]))
    batch = np.arange(image.shape[0])[:, None, None]
    one = np.float32(1)

    def run() -> None:
        edged.fill(0)
        edged[:, 1:-1, 1:-1] = image
        across, down = positions[..., 0], positions[..., 1]
        inside = (across > -1) & (down > -1) & (across < width) & (down < height)
        x, z = np.where(inside, across, 0), np.where(inside, down, 0)
        left, top = np.floor(x).astype(np.intp), np.floor(z).astype(np.intp)
        right = ((left + 1).astype(np.float32) - x)[..., None]
        below = ((top + 1).astype(np.float32) - z)[..., None]
        # The border of zeros comes first: pixel i of the image is i + 1 of `edged`.
        np.copyto(y, right * below * edged[batch, top + 1, left + 1])
        np.add(y, (one - right) * (one - below) * edged[batch, top + 2, left + 2], out=y)
        np.add(y, right * (one - below) * edged[batch, top + 2, left + 1], out=y)
        np.add(y, (one - right) * below * edged[batch, top + 1, left + 2], out=y)
        y[~inside] = 0

    return run
