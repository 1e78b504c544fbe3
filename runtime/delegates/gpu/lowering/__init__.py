"""Discovers the kernel families of this folder and its subfolders, and explains how to write one.

Several families may run one operator, each for other types of its first input.

A family is one module `lowering/<kind>/<family>.py` with a module constant `FAMILY = Family(...)`, which
discovery finds, and its OpenCL C in `kernels/<kind>/<family>.cl` or `kernels/<kind>/<family>_<variant>.cl`;
the kinds are those of `runtime/ops`. A large family is a folder in both places, with the constant in
`lowering/<kind>/<family>/family.py`. A family answers three questions:

1. `supports(facts)`: can these options and shapes run? None, or `Unsupported(reason)`. The frame has already
   checked that the tensors are static and of `Family.types`, which are float32 where it says nothing
   (constants may be fp16: they arrive as float32).
2. `read(facts)`: the operator as the delegate sees it, a `NodeSpec`: which tensors stay inputs of the node,
   normalised attributes, and the fused activation by name (it becomes the node's first epilogue step). Window
   families (conv, depthwise, pool) use the names of `window_attributes`, so that the padding pass knows them.
3. `lower(node, context)`: a list of `Candidate`s, the default choice first. A candidate is a sequence of
   `Launch`es (one, or e.g. three for Winograd). Everything that is decided here is decided once.

A launch on a CPU device runs a *unit function*, the text of the family's `.cl` file:

    static void FUNC(const int t, const int nt,
                     __global const float *restrict in, __global const float *restrict weights,
                     __global float *restrict out PARAMETERS)
    {
        for (int u = FIRST_UNIT(t, nt); u < FIRST_UNIT(t + 1, nt); u++)
            ... store16(EPILOGUE(v, p, c), ...)
    }

- Worker t of nt does the units [UNITS * t / nt, UNITS * (t + 1) / nt): `FIRST_UNIT` of `common.cl`; the frame
  passes `UNITS`, which is `Launch.units`. Units should cost about the same; the frame picks nt.
- Pointer parameters stand in the order of `Launch.args`, each of the element type of its value, constant or
  scratch (`ElementType.opencl`). The frame passes them from one arena and one buffer of constants; each is
  `restrict` and 64-byte aligned. `LineOf(value)` passes the line in which a value begins that a copy writes,
  `Check(message)` an int that the kernel sets where its operands' values cannot be right.
- Shapes, strides, counts and the model's scalars are run-time parameters: `Instance.parameters`. The macro
  PARAMETERS, which stands behind the pointers, declares each under its name, an int as `const int`, a float
  as `const float`. Layers that differ in these numbers only share one compiled function, also those of other
  models and of resized inputs.
- What the code itself depends on is compile-time: `Instance.defines` has tiles, element types, kinds, numbers
  that bound an unrolled loop or a private array. Every define multiplies the functions that are compiled:
  prefer an `if` on a parameter, which costs nothing outside of inner loops. Names of both are upper case and
  need not be unique between families: the frame undefines them behind each instance.
- A division by a parameter takes tens of cycles. Divide once for each unit and count on from there, or pass
  the divisor by `parameters.divisor` and use QUOTIENT and REMAINDER, which multiply by a reciprocal. Where an
  unrolled tile reads at many multiples of a stride, in a loop, OPAQUE keeps the compiler from spilling them.
- The frame defines `FUNC` from `Instance.name`, by the grammar `<dtype>_<family>_<variant>__<tile>`, e.g.
  `f32_gemm__m12n32`; it appends a digest where two instances share a name. A name is a part of the
  function: it holds no shape either.
- The file is included once per instance: file-level helpers live in `common.cl`, or are named by
  `LOCAL_NAME(helper)` (= FUNC##_helper), or are static inline functions behind an include guard when they do
  not depend on the defines.
- The epilogue works on float32 alone: operators on other types are nodes without steps.
  `EPILOGUE(v, p, c)` is an expression of a float16 `v` at pixel `p` (all leading dimensions of
  the output flattened) and channels `c .. c+15`. `v` is evaluated once, `p` and `c` several times. The launch
  that stores the node's output is made by `Context.launch`; the frame then defines
  EPILOGUE and adds the operands' pointers and strides to PARAMETERS. Without it EPILOGUE(v, p, c) is `(v)`.
  `Family.epilogue` says that a family applies it.
- Layouts: element (p, c) of a value lies at pointer[p * pixel_stride + c * channel_stride], the strides being
  those of `context.layout(value_id)`. Padded lanes (C .. round_up(C)) must be written
  and finite (zero weights give zero: finite).
- A family that can read a dense or transposed first input (images of 3 channels: any strides, no padded
  lanes) says so with `reads_any_layout`; else the frame inserts a packing launch. `writes_dense` is the same
  for outputs whose pixel stride is exactly C.
- Constants: `PackedConstant("name", elements, make)`; `make` is called only when the candidate is chosen or
  timed.

Where `context.device.works_in_groups`, a family may offer launches of work-groups instead, by files
`<family>_groups.cl` in the portable subset of C that docs/architecture.md describes:

    static void FUNC(INPUT(in), OUTPUT(out) PARAMETERS)
    {
        for (int i = GLOBAL_ID(0); i < TOTAL; i += GLOBAL_SIZE(0))
            ... STORE4(out, at, EPILOGUE(v, p, c));
    }

- `Instance.work_group` states the size of a work-group and its arrays in local memory, which the frame
  declares and the function uses by name; `Launch.groups` how many groups there are in each dimension.
- The epilogue is one of vectors of four.
- In a buffer that LOAD, LOAD4 and STORE4 alone reach, the kernel may find fp16 (`layout/halves.py`). Their
  first argument is the buffer's name and nothing else; pointers that a function may lack come last.
- A family without such a kernel offers its unit functions; each unit is then a work-item.
"""

from functools import cache
from importlib import import_module
from pkgutil import walk_packages

from runtime.delegates.gpu.graph.element_type import ElementType
from runtime.delegates.gpu.graph.graph import Custom, Graph, Kind, Node
from runtime.delegates.gpu.lowering.spec import Family
from runtime.model.graph import Operator
from runtime.model.schema import BuiltinOperator

_CUSTOM = {kind.value: kind for kind in Custom}


@cache
def families() -> dict[Kind, tuple[Family, ...]]:
    """Kind of operator → the families that run it.

    Raises RuntimeError where two modules claim an operator for one type of its first input.
    """
    found: dict[Kind, tuple[Family, ...]] = {}
    for module in sorted(walk_packages(__path__, f"{__name__}."), key=lambda item: item.name):
        family = getattr(import_module(module.name), "FAMILY", None)
        if family is None:
            continue
        for operator in family.operators:
            taken = {element for other in found.get(operator, ()) for element in _first(other, operator)}
            if taken & {*_first(family, operator)}:
                raise RuntimeError(f"two kernel families claim {operator.name}; the second is {module.name}")
            found[operator] = (*found.get(operator, ()), family)
    return found


def _first(family: Family, kind: Kind) -> tuple[ElementType, ...]:
    return family.types_of(kind).of_input(0)


def family_for(kind: Kind, element: ElementType | None) -> Family | None:
    """Return the family that runs an operator whose first input has this type; None if there is none.

    An operator that one family runs alone is its, whatever the type.
    """
    claims = families().get(kind, ())
    if len(claims) == 1:
        return claims[0]
    return next((family for family in claims if element in _first(family, kind)), None)


def family_of(node: Node, graph: Graph) -> Family:
    """Return the family that runs a node. Raises ValueError if none does."""
    found = family_for(node.op, graph.values[(*node.reads, *node.outputs)[0]].type)
    if found is None:
        raise ValueError(f"no kernel family runs {node.op.name} of this type")
    return found


def kind_of(operator: Operator) -> Kind:
    """Return the key of an operator's family; CUSTOM for a custom operator without kernels."""
    if operator.opcode is not BuiltinOperator.CUSTOM:
        return operator.opcode
    return _CUSTOM.get(operator.name, BuiltinOperator.CUSTOM)
