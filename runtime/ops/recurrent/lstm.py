"""LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM and BIDIRECTIONAL_SEQUENCE_LSTM."""

from runtime.model.schema import LSTMKernelType
from runtime.ops.recurrent.basic_lstm import basic_lstm, basic_lstm_shape
from runtime.ops.recurrent.float_lstm import FloatLstm, LstmSlots, lstm_sizes
from runtime.ops.recurrent.integer_lstm import IntegerLstm
from runtime.ops.recurrent.steps import Cell, both_ways, one_way_shape, over_time, time_first, two_way_shapes
from runtime.ops.support import Array, Kernel, Op, OpContext, Shape, TensorType, operator

# The bidirectional operator has 48 inputs and no layer norms: these indices lie behind its last input, so
# that they count as absent.
_FORWARD = LstmSlots(state=35, cell=36, norms=(48, 49, 50, 51), auxiliary=(40, 41, 42, 43))
_BACKWARD = LstmSlots(
    inputs=(18, 19, 20, 21),
    recurrent=(22, 23, 24, 25),
    peepholes=(26, 27, 28),
    biases=(29, 30, 31, 32),
    projection=(33, 34),
    state=37,
    cell=38,
    norms=(48, 49, 50, 51),
    auxiliary=(44, 45, 46, 47),
)
_AUXILIARY_INPUT = 39
"""Index of the auxiliary input (`kAuxInputTensor` of `bidirectional_sequence_lstm.cc`)."""

_FORWARD_AUXILIARY_WEIGHTS = 41
"""Index of the forward cell's auxiliary weights of the forget gate, which CIFG has too: its presence says
that the auxiliary input joins the input instead of replacing it."""

_NOTE = "weights float32, or int8 and uint8: hybrid"
_WITH_INTEGERS = (TensorType.FLOAT32, TensorType.INT8)
_INTEGER_NOTE = f"{_NOTE}; int8 with an int16 cell"


def _cell(op: OpContext, x: Array) -> Cell:
    """Return the cell on x [time, batch, n], of floats or integers as the input is."""
    kind = IntegerLstm if op.input().type is TensorType.INT8 else FloatLstm
    return kind(op, LstmSlots(), x)


def lstm_shape(op: OpContext) -> tuple[Shape, ...]:
    """Return [batch, outputs] of one step; the basic kernel has three outputs more."""
    if op.option("kernel_type") is LSTMKernelType.BASIC:
        return basic_lstm_shape(op)
    return one_way_shape(op, 2, lstm_sizes(op, LstmSlots()).outputs)


@operator(
    Op.LSTM,
    max_version=4,
    infer=lstm_shape,
    types=(*_WITH_INTEGERS, TensorType.UINT8),
    note=f"{_INTEGER_NOTE}; uint8 in the basic kernel",
    stateful=True,
)
def lstm(op: OpContext) -> Kernel:
    """LSTM: one step for a batch, with the full or the basic kernel."""
    if op.option("kernel_type") is LSTMKernelType.BASIC:
        return basic_lstm(op)
    return over_time(_cell(op, op.read(0)[None]), op.write()[None])


@operator(
    Op.UNIDIRECTIONAL_SEQUENCE_LSTM,
    max_version=4,
    infer=lambda op: one_way_shape(op, 3, lstm_sizes(op, LstmSlots()).outputs),
    types=_WITH_INTEGERS,
    note=_INTEGER_NOTE,
    stateful=True,
)
def sequence_lstm(op: OpContext) -> Kernel:
    """UNIDIRECTIONAL_SEQUENCE_LSTM of [time, batch, n] or [batch, time, n]; states stay for the next run."""
    return over_time(_cell(op, time_first(op, op.read(0))), time_first(op, op.write()))


@operator(
    Op.BIDIRECTIONAL_SEQUENCE_LSTM,
    max_version=3,
    infer=lambda op: two_way_shapes(op, *(lstm_sizes(op, s).outputs for s in (_FORWARD, _BACKWARD))),
    types=(TensorType.FLOAT32,),
    note=_NOTE,
    stateful=True,
)
def bidirectional_lstm(op: OpContext) -> Kernel:
    """BIDIRECTIONAL_SEQUENCE_LSTM: two cells, one backwards in time.

    An auxiliary input joins both cells' input where it has weights, else it is the input of the second alone.
    """
    return both_ways(
        op,
        lambda x, aux: FloatLstm(op, _FORWARD, x, aux),
        lambda x, aux: FloatLstm(op, _BACKWARD, x, aux),
        lstm_sizes(op, _FORWARD).outputs,
        _AUXILIARY_INPUT,
        _FORWARD_AUXILIARY_WEIGHTS,
    )
