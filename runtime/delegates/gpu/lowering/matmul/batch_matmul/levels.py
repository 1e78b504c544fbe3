"""BATCH_MATMUL of int8, bit for bit as LiteRT's reference kernel."""

from dataclasses import dataclass, replace

import numpy as np

from runtime.delegates.base import Unsupported
from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.epilogue import Levels
from runtime.delegates.gpu.graph.graph import LANES, Node, ceil_div
from runtime.delegates.gpu.graph.parameters import divisor
from runtime.delegates.gpu.graph.simulation import levels_of
from runtime.delegates.gpu.lowering import spec
from runtime.delegates.gpu.lowering.matmul.batch_matmul.family import product_of, read, supports
from runtime.delegates.gpu.lowering.matmul.batch_matmul.product import Product, start_of
from runtime.delegates.gpu.lowering.matmul.integer_gemm.product import Panels
from runtime.delegates.gpu.lowering.matmul.integer_gemm.stage import ROWS, SIGN, reference_stage, stage_rows
from runtime.model.schema import BuiltinOperator as Op

_MOST_DEPTH = 8192
"""Products in a sum, at most: 255 * 255 * 8192 is below 2^29, up to which every stage is exact."""


def _levels(facts: spec.OperatorFacts) -> list[Levels | None]:
    tensors = facts.graph.subgraph.tensors
    return [levels_of(tensors[i]) for i in (*facts.operator.inputs[:2], facts.operator.outputs[0])]


def _supports(facts: spec.OperatorFacts) -> Unsupported | None:
    if None in _levels(facts):
        return Unsupported("operands and result of integers must have one scale each")
    if facts.shape(0)[-2 if facts.options.get("adj_x") else -1] > _MOST_DEPTH:
        return Unsupported("sums of products could leave 30 bits")
    return supports(facts)


def _read(facts: spec.OperatorFacts) -> spec.NodeSpec:
    """`scales`: the one factor of all sums, for each lane of a vector; `zero_points`: of the operands."""
    x, z, made = _levels(facts)
    if x is None or z is None or made is None:
        raise ValueError("a product of levels was accepted without scales")
    # `GetQuantizedConvolutionMultipler` of LiteRT multiplies the two in single precision.
    single = np.float32(x.scale) * np.float32(z.scale)
    own = read(facts)
    more = {
        "scales": (float(single) / made.scale,) * LANES,
        "zero_points": (x.zero_point, z.zero_point),
        "zero_point": made.zero_point,
    }
    return replace(own, attributes={**own.attributes, **more})


@dataclass(frozen=True, slots=True)
class _Packed:
    """The right side in panels of `ints` ints each, of which a matrix has `count`."""

    product: Product
    panels: Panels

    @property
    def count(self) -> int:
        return len(self.panels.starts)

    @property
    def ints(self) -> int:
        # One line of what the left zero point adds to each column's sum, then the bytes, four to an int.
        return self.panels.columns * (1 + self.panels.fours)

    def scratch(self) -> spec.Scratch:
        """Return the memory for all matrices."""
        return spec.Scratch("panels", self.product.right.matrices * self.count * self.ints, ElementType.I32)


def lower(node: Node, context: spec.Context) -> list[spec.Candidate]:
    """Two launches: the right side is packed in every run, as weights are on the host."""
    product = product_of(node, context)
    packed = _Packed(product, Panels.of(context.device, product.columns, product.rows, product.depth))
    return [spec.Candidate("panels", (_pack(node, context, packed), _gemm(node, context, packed)))]


def _pack(node: Node, context: spec.Context, packed: _Packed) -> spec.Launch:
    product, panels, scratch = packed.product, packed.panels, packed.scratch()
    right = product.right
    start = start_of("IN", right.extents, right.batches, "(m)", right.start)
    return context.launch(
        node,
        spec.function(
            "matmul/batch_matmul/levels_pack.cl",
            f"i8_batch_matmul_levels_pack__n{panels.columns}",
            {"COLUMNS": panels.columns, "ADJOINT": right.adjoint, "IN(m)": start.expression},
            **start.parameters,
            K=product.depth,
            N=product.columns,
            CHANNELS=panels.width,
            FOURS=panels.fours,
            IN_STRIDE=right.stride,
            LEFT_ZERO=node.attributes["zero_points"][0],
            **divisor("PANELS", packed.count),
        ),
        (context.pointer(right.source), scratch),
        right.matrices * packed.count,
        spec.Work(f"{product.sizes} int8 panels", moved=product.right_elements + scratch.bytes),
    )


def _gemm(node: Node, context: spec.Context, packed: _Packed) -> spec.Launch:
    product, panels, (target,) = packed.product, packed.panels, node.outputs
    left, a = product.left, node.attributes
    starts, steps = product.starts(product.right.packed_batches(packed.count * packed.ints))
    # XNNPACK leaves these products to the reference's arithmetic.
    rounding = reference_stage(a["scales"])
    rows = ceil_div(product.rows, panels.tile)
    stage = spec.PackedConstant(
        f"stage{target}",
        ROWS[rounding] * LANES,
        # No offsets, because panels and kernel make up for the zero points themselves.
        lambda: stage_rows(rounding, np.zeros(LANES, np.int64), a, np.arange(LANES)),
        ElementType.I32,
    )
    return context.launch(
        node,
        spec.function(
            "matmul/batch_matmul/levels.cl",
            f"i8_batch_matmul_levels__m{panels.tile}n{panels.columns}",
            spec.joined(
                starts,
                {
                    "TILE_M": panels.tile,
                    "VECTORS": panels.vectors,
                    "DENSE": left.step == 1,
                    "INSTRUCTION": context.device.multiplies_bytes,
                    "STAGE": rounding.value,
                },
            ),
            **steps,
            **divisor("TILES", packed.count * rows),
            **divisor("ROW_TILES", rows),
            M=product.rows,
            K=product.depth,
            CHANNELS=panels.width,
            FOURS=panels.fours,
            LEFT_ROW=left.row,
            LEFT_STEP=left.step,
            LEFT_ZERO=a["zero_points"][0],
            RIGHT_ZERO=a["zero_points"][1] + SIGN,
            ZERO_POINT=a["zero_point"],
            OUT_STRIDE=context.layout(target).pixel_stride,
        ),
        (left.source, packed.scratch(), stage, target),
        product.batch * packed.count * rows,
        # `Product.bytes` counts floats.
        spec.Work(f"{product.sizes} int8", product.flops, product.bytes // 4),
    )


FAMILY = spec.Family(
    operators=(Op.BATCH_MATMUL,),
    read=_read,
    lower=lower,
    supports=_supports,
    types={Op.BATCH_MATMUL: spec.Types(((ElementType.I8,),), ((ElementType.I8,),))},
)
