"""Operators that run other subgraphs: IF, WHILE, CALL, CALL_ONCE, STABLEHLO_CASE, STABLEHLO_COMPOSITE."""

import time
from collections.abc import Sequence

from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, Value, operator

MAX_LOOP_ITERATIONS = 1_000_000
"""Iterations of one WHILE after which it counts as endless. Chosen far above the sequence lengths of real
models: LiteRT has no bound, so that a file with a constant condition would block its runner."""

MAX_LOOP_SECONDS = 600.0
"""Seconds of one WHILE after which it counts as endless. Chosen: a large body would reach the bound on
iterations too late."""


class Once:
    """Whether an initialising subgraph has run in this interpreter."""

    done = False


def _arguments(op: OpContext, first: int) -> list[Value]:
    return [op.input(i) for i in range(first, len(op.inputs))]


def _settled(op: OpContext, shapes: Sequence[tuple[Shape | None, ...]]) -> tuple[Shape, ...]:
    """Return the shapes that every branch agrees on. Raises `PostponeError` where they differ."""
    found: list[Shape] = []
    for branch in shapes:
        if len(branch) != len(op.outputs):
            raise op.error(f"a subgraph with {len(branch)} outputs for {len(op.outputs)} of the operator")
    for alternatives in zip(*shapes, strict=True):
        shape = alternatives[0]
        if shape is None or any(s != shape for s in alternatives):
            raise op.shapes_at_run_time()
        found.append(shape)
    return tuple(found)


def _branches_infer(op: OpContext, branches: Sequence[int], first: int) -> tuple[Shape, ...]:
    arguments = _arguments(op, first)
    return _settled(op, [op.services.infer_subgraph(b, arguments, known=True) for b in branches])


def _deliver(op: OpContext, results: Sequence[Array]) -> None:
    for i, array in enumerate(results):
        op.deliver(i, array)


def _reads(op: OpContext, first: int) -> list[Array]:
    return [op.read(i) for i in range(first, len(op.inputs))]


def _if_shapes(op: OpContext) -> tuple[Shape, ...]:
    if op.input(0).elements != 1:
        raise op.error(f"the condition has {op.input(0).elements} elements, not 1")
    return _branches_infer(op, (op.option("then_subgraph_index"), op.option("else_subgraph_index")), 1)


@operator(
    Op.IF,
    infer=_if_shapes,
    stateful=True,
    subgraphs=("then_subgraph_index", "else_subgraph_index"),
    note="one BOOL chooses; values of any type",
)
def branch(op: OpContext) -> Kernel:
    """IF: run one of two subgraphs, by a condition of one bool."""
    condition, arguments = op.read(0).reshape(-1), _reads(op, 1)
    then, otherwise = op.option("then_subgraph_index"), op.option("else_subgraph_index")
    services = op.services
    return lambda: _deliver(op, services.run_subgraph(then if condition[0] else otherwise, arguments))


def _case_shapes(op: OpContext) -> tuple[Shape, ...]:
    branches = op.option("branch_subgraph_indices")
    if not branches:
        raise op.error("no branches")
    return _branches_infer(op, branches, 1)


@operator(
    Op.STABLEHLO_CASE,
    infer=_case_shapes,
    stateful=True,
    subgraphs=("branch_subgraph_indices",),
    note="one INT32 chooses; values of any type",
)
def case(op: OpContext) -> Kernel:
    """STABLEHLO_CASE: run the subgraph of an index; one outside the list runs the last."""
    index, arguments = op.read(0).reshape(-1), _reads(op, 1)
    branches: tuple[int, ...] = tuple(op.option("branch_subgraph_indices"))
    services = op.services

    def run() -> None:
        at = int(index[0])
        chosen = branches[at] if 0 <= at < len(branches) else branches[-1]
        _deliver(op, services.run_subgraph(chosen, arguments))

    return run


def _while_shapes(op: OpContext) -> tuple[Shape, ...]:
    arguments = _arguments(op, 0)
    before = tuple(v.shape for v in arguments)
    # Not known: a constant among the loop's variables is their value in the first round only.
    condition = op.services.infer_subgraph(op.option("cond_subgraph_index"), arguments, known=False)
    if len(condition) != 1:
        raise op.error(f"the condition has {len(condition)} outputs, not 1")
    after = op.services.infer_subgraph(op.option("body_subgraph_index"), arguments, known=False)
    return _settled(op, [before, after])


@operator(
    Op.WHILE,
    infer=_while_shapes,
    stateful=True,
    subgraphs=("cond_subgraph_index", "body_subgraph_index"),
    note="values of any type; the condition gives one BOOL",
)
def loop(op: OpContext) -> Kernel:
    """WHILE: run the body on its own outputs for as long as the condition holds.

    Raises `ShapeError` beyond `MAX_LOOP_ITERATIONS` or `MAX_LOOP_SECONDS`.
    """
    first = _reads(op, 0)
    condition, body = op.option("cond_subgraph_index"), op.option("body_subgraph_index")
    services = op.services

    def holds(values: Sequence[Array]) -> bool:
        (result,) = services.run_subgraph(condition, values)
        if result.size != 1:
            raise op.error(f"the condition has {result.size} elements, not 1")
        return bool(result.reshape(-1)[0])

    def run() -> None:
        values, count, started = first, 0, time.monotonic()
        while holds(values):
            values = services.run_subgraph(body, values)
            count += 1
            if count >= MAX_LOOP_ITERATIONS or time.monotonic() - started > MAX_LOOP_SECONDS:
                raise op.error(f"the loop did not end within {count} iterations")
        _deliver(op, values)

    return run


_CALLED = {
    Op.CALL: ("subgraph", "values of any type"),
    Op.STABLEHLO_COMPOSITE: ("decomposition_subgraph_index", "values of any type, by the decomposition"),
}
"""The option that names the subgraph of an operator which only runs it, and the note."""


def _called_shapes(op: OpContext) -> tuple[Shape, ...]:
    return _branches_infer(op, (op.option(_CALLED[op.operator.opcode][0]),), 0)


def call(op: OpContext) -> Kernel:
    """CALL, STABLEHLO_COMPOSITE: run a subgraph, which defines what a composite means."""
    index, arguments, services = op.option(_CALLED[op.operator.opcode][0]), _reads(op, 0), op.services
    return lambda: _deliver(op, services.run_subgraph(index, arguments))


for _opcode, (_option, _note) in _CALLED.items():
    operator(_opcode, infer=_called_shapes, stateful=True, subgraphs=(_option,), note=_note)(call)


@operator(
    Op.CALL_ONCE,
    infer=lambda _op: (),
    stateful=True,
    subgraphs=("init_subgraph_index",),
    note="without operands",
)
def call_once(op: OpContext) -> Kernel:
    """CALL_ONCE: run a subgraph without inputs and outputs at the first invocation of an interpreter."""
    index, services = op.option("init_subgraph_index"), op.services
    _, state = services.resource(Once, (str(index), ""))

    def run() -> None:
        if not state.done:
            services.run_subgraph(index, ())
            # Only now: an initialisation that failed runs again.
            state.done = True

    return run
