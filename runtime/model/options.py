"""The options of every builtin operator: field names, slots, types and defaults of `schema.fbs`.

A table is its number in the union, its name and the operators that have it; behind the bar its fields in the
schema's own order, `name:type` or `name:type=default`, where `_` is a deprecated slot. Indented lines go on.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from runtime.model import schema
from runtime.model.schema import BuiltinOperator

_BUILTIN_OPTIONS = """
1 Conv2DOptions CONV_2D | padding:Padding stride_w:int stride_h:int
  fused_activation_function:ActivationFunctionType dilation_w_factor:int=1 dilation_h_factor:int=1
  quantized_bias_type:TensorType
2 DepthwiseConv2DOptions DEPTHWISE_CONV_2D | padding:Padding stride_w:int stride_h:int depth_multiplier:int
  fused_activation_function:ActivationFunctionType dilation_w_factor:int=1 dilation_h_factor:int=1
3 ConcatEmbeddingsOptions CONCAT_EMBEDDINGS | num_channels:int num_columns_per_channel:[int]
  embedding_dim_per_channel:[int]
4 LSHProjectionOptions LSH_PROJECTION | type:LSHProjectionType
5 Pool2DOptions AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D | padding:Padding stride_w:int stride_h:int
  filter_width:int filter_height:int fused_activation_function:ActivationFunctionType
6 SVDFOptions SVDF | rank:int fused_activation_function:ActivationFunctionType
  asymmetric_quantize_inputs:bool
7 RNNOptions RNN | fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
8 FullyConnectedOptions FULLY_CONNECTED | fused_activation_function:ActivationFunctionType
  weights_format:FullyConnectedOptionsWeightsFormat keep_num_dims:bool asymmetric_quantize_inputs:bool
  quantized_bias_type:TensorType quant_spec:[ubyte]
9 SoftmaxOptions SOFTMAX | beta:float
10 ConcatenationOptions CONCATENATION | axis:int fused_activation_function:ActivationFunctionType
11 AddOptions ADD | fused_activation_function:ActivationFunctionType pot_scale_int16:bool=true
12 L2NormOptions L2_NORMALIZATION | fused_activation_function:ActivationFunctionType
13 LocalResponseNormalizationOptions LOCAL_RESPONSE_NORMALIZATION | radius:int bias:float alpha:float
  beta:float
14 LSTMOptions LSTM | fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float
  kernel_type:LSTMKernelType asymmetric_quantize_inputs:bool
15 ResizeBilinearOptions RESIZE_BILINEAR | _ _ align_corners:bool half_pixel_centers:bool
16 CallOptions CALL | subgraph:uint
17 ReshapeOptions RESHAPE | new_shape:[int]
18 SkipGramOptions SKIP_GRAM | ngram_size:int max_skip_size:int include_all_ngrams:bool
19 SpaceToDepthOptions SPACE_TO_DEPTH | block_size:int
20 EmbeddingLookupSparseOptions EMBEDDING_LOOKUP_SPARSE | combiner:CombinerType
21 MulOptions MUL | fused_activation_function:ActivationFunctionType
23 GatherOptions GATHER | axis:int batch_dims:int
27 ReducerOptions MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL | keep_dims:bool
28 SubOptions SUB | fused_activation_function:ActivationFunctionType pot_scale_int16:bool=true
29 DivOptions DIV | fused_activation_function:ActivationFunctionType
30 SqueezeOptions SQUEEZE | squeeze_dims:[int]
31 SequenceRNNOptions UNIDIRECTIONAL_SEQUENCE_RNN | time_major:bool
  fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool
32 StridedSliceOptions STRIDED_SLICE | begin_mask:int end_mask:int ellipsis_mask:int new_axis_mask:int
  shrink_axis_mask:int offset:bool
35 SplitOptions SPLIT | num_splits:int
37 CastOptions CAST | in_data_type:TensorType out_data_type:TensorType
40 ArgMaxOptions ARG_MAX | output_type:TensorType
49 TransposeConvOptions TRANSPOSE_CONV | padding:Padding stride_w:int stride_h:int
  fused_activation_function:ActivationFunctionType quantized_bias_type:TensorType
50 SparseToDenseOptions SPARSE_TO_DENSE | validate_indices:bool
55 ShapeOptions SHAPE | out_type:TensorType
57 ArgMinOptions ARG_MIN | output_type:TensorType
58 FakeQuantOptions FAKE_QUANT | min:float max:float num_bits:int narrow_range:bool
59 PackOptions PACK | values_count:int axis:int
61 OneHotOptions ONE_HOT | axis:int
64 UnpackOptions UNPACK | num:int axis:int
69 BidirectionalSequenceLSTMOptions BIDIRECTIONAL_SEQUENCE_LSTM |
  fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float merge_outputs:bool
  time_major:bool=true asymmetric_quantize_inputs:bool
70 BidirectionalSequenceRNNOptions BIDIRECTIONAL_SEQUENCE_RNN | time_major:bool
  fused_activation_function:ActivationFunctionType merge_outputs:bool asymmetric_quantize_inputs:bool
71 UnidirectionalSequenceLSTMOptions UNIDIRECTIONAL_SEQUENCE_LSTM |
  fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float time_major:bool
  asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
74 ResizeNearestNeighborOptions RESIZE_NEAREST_NEIGHBOR | align_corners:bool half_pixel_centers:bool
75 LeakyReluOptions LEAKY_RELU | alpha:float
77 MirrorPadOptions MIRROR_PAD | mode:MirrorPadMode
79 SplitVOptions SPLIT_V | num_splits:int
80 UniqueOptions UNIQUE | idx_out_type:TensorType=INT32
87 ReverseSequenceOptions REVERSE_SEQUENCE | seq_dim:int batch_dim:int
92 IfOptions IF | then_subgraph_index:int else_subgraph_index:int
93 WhileOptions WHILE | cond_subgraph_index:int body_subgraph_index:int
94 DepthToSpaceOptions DEPTH_TO_SPACE | block_size:int
101 BatchMatMulOptions BATCH_MATMUL | adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
102 CumsumOptions CUMSUM | exclusive:bool reverse:bool
103 CallOnceOptions CALL_ONCE | init_subgraph_index:int
106 Conv3DOptions CONV_3D CONV_3D_TRANSPOSE | padding:Padding stride_d:int stride_w:int stride_h:int
  fused_activation_function:ActivationFunctionType dilation_d_factor:int=1 dilation_w_factor:int=1
  dilation_h_factor:int=1
107 HashtableOptions HASHTABLE | table_id:int key_dtype:TensorType value_dtype:TensorType
111 VarHandleOptions VAR_HANDLE | container:string shared_name:string
114 RandomOptions RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL | seed:long seed2:long
115 BucketizeOptions BUCKETIZE | boundaries:[float]
116 GeluOptions GELU | approximate:bool
"""

_BUILTIN_OPTIONS_2 = """
1 StablehloConcatenateOptions STABLEHLO_CONCATENATE | dimension:long
2 StablehloBroadcastInDimOptions STABLEHLO_BROADCAST_IN_DIM | broadcast_dimensions:[long]
3 StablehloSliceOptions STABLEHLO_SLICE | start_indices:[long] limit_indices:[long] strides:[long]
4 StablehloConvolutionOptions STABLEHLO_CONVOLUTION | window_strides:[long] padding:[long]
  lhs_dilation:[long] rhs_dilation:[long] window_reversal:[bool] input_batch_dimension:long
  input_feature_dimension:long input_spatial_dimensions:[long] kernel_input_feature_dimension:long
  kernel_output_feature_dimension:long kernel_spatial_dimensions:[long] output_batch_dimension:long
  output_feature_dimension:long output_spatial_dimensions:[long] feature_group_count:long
  batch_group_count:long precision_config:[StablehloPrecisionConfig]
5 StablehloCustomCallOptions STABLEHLO_CUSTOM_CALL | call_target_name:string has_side_effect:bool
  backend_config:string api_version:int called_computations:[int] custom_attributes:[ubyte]
6 StablehloReduceOptions STABLEHLO_REDUCE | dimensions:[long] body_subgraph_index:int
7 StablehloScatterOptions STABLEHLO_SCATTER | indices_are_sorted:bool update_window_dims:[long]
  inserted_window_dims:[long] scatter_dims_to_operand_dims:[long] index_vector_dim:long unique_indices:bool
  update_computation_subgraph_index:int
8 StablehloCompareOptions STABLEHLO_COMPARE | comparison_direction:StablehloComparisonDirection
  compare_type:StablehloComparisonType
9 StablehloDynamicSliceOptions STABLEHLO_DYNAMIC_SLICE | slice_sizes:[long]
10 StablehloPadOptions STABLEHLO_PAD | edge_padding_low:[long] edge_padding_high:[long]
  interior_padding:[long]
11 StablehloIotaOptions STABLEHLO_IOTA | iota_dimension:long
12 StablehloDotGeneralOptions STABLEHLO_DOT_GENERAL | lhs_batching_dimensions:[long]
  rhs_batching_dimensions:[long] lhs_contracting_dimensions:[long] rhs_contracting_dimensions:[long]
  precision_config:[StablehloPrecisionConfig]
13 StablehloReduceWindowOptions STABLEHLO_REDUCE_WINDOW | window_dimensions:[long] window_strides:[long]
  base_dilations:[long] window_dilations:[long] padding:[long] body_subgraph_index:int
14 StablehloSortOptions STABLEHLO_SORT | dimension:long is_stable:bool comparator_subgraph_index:int
15 StablehloWhileOptions STABLEHLO_WHILE | cond_subgraph_index:int body_subgraph_index:int
16 StablehloGatherOptions STABLEHLO_GATHER | offset_dims:[long] collapsed_slice_dims:[long]
  start_index_map:[long] index_vector_dim:long slice_sizes:[long] indices_are_sorted:bool
17 StablehloTransposeOptions STABLEHLO_TRANSPOSE | permutation:[long]
19 StablehloRngBitGeneratorOptions STABLEHLO_RNG_BIT_GENERATOR | algorithm:RngAlgorithm
20 ReduceWindowOptions REDUCE_WINDOW | reduce_function:ReduceWindowFunction
21 StableHLOCompositeOptions STABLEHLO_COMPOSITE | name:string decomposition_subgraph_index:int
  composite_attributes:[ubyte] composite_attributes_format:CustomOptionsFormat version:int
23 StablehloCaseOptions STABLEHLO_CASE | branch_subgraph_indices:[int]
"""


@dataclass(frozen=True, slots=True)
class OptionField:
    """One field of an options table. `code` is its struct code, "s" for a string; `enum` names its values."""

    name: str
    slot: int
    code: str
    is_vector: bool
    default: Any
    enum: type[IntEnum] | None = None


@dataclass(frozen=True, slots=True)
class OptionsTable:
    """A member of the unions `builtin_options` (`second` false) or `builtin_options_2`."""

    name: str
    union_value: int
    second: bool
    fields: tuple[OptionField, ...]


_CODES = {"bool": "?", "ubyte": "B", "int": "i", "uint": "I", "long": "q", "float": "f", "string": "s"}
_ENUM_CODES = {
    "CombinerType": "b",
    "StablehloComparisonDirection": "I",
    "StablehloComparisonType": "I",
    "StablehloPrecisionConfig": "I",
    "ReduceWindowFunction": "i",
}


def _field(slot: int, text: str) -> OptionField:
    name, _, rest = text.partition(":")
    kind, _, written = rest.partition("=")
    is_vector = kind.startswith("[")
    kind = kind.strip("[]")
    enum: type[IntEnum] | None = None
    if kind not in _CODES:
        enum = getattr(schema, kind)
    # Enumerations are bytes in schema.fbs, but for those listed.
    code = _CODES.get(kind) or _ENUM_CODES.get(kind, "b")
    return OptionField(name, slot, code, is_vector, _default(code, is_vector, enum, written), enum)


def _default(code: str, is_vector: bool, enum: type[IntEnum] | None, written: str) -> Any:
    if is_vector:
        # Vectors of bytes are read as `bytes`, all others as tuples.
        return b"" if code == "B" else ()
    if enum is not None:
        return enum[written] if written else enum(0)
    if code == "s":
        return ""
    if code == "?":
        return written == "true"
    return float(written or 0) if code == "f" else int(written or 0)


@cache
def _tables() -> dict[str, tuple[OptionsTable, list[str]]]:
    """Each table by its name, with the names of the operators that have it."""
    tables = {}
    for text, second in ((_BUILTIN_OPTIONS, False), (_BUILTIN_OPTIONS_2, True)):
        for line in text.replace("\n  ", " ").strip().splitlines():
            head, _, parts = line.partition("|")
            number, name, *operators = head.split()
            # Numbered before `_` is left out: a deprecated field keeps its slot.
            fields = tuple(_field(slot, part) for slot, part in enumerate(parts.split()) if part != "_")
            tables[name] = (OptionsTable(name, int(number), second, fields), operators)
    return tables


def options_table(name: str) -> OptionsTable:
    """Return the table called `name`, such as "Conv2DOptions". Raises KeyError for an unknown one."""
    return _tables()[name][0]


@cache
def _table_of_operator() -> dict[BuiltinOperator, OptionsTable]:
    return {BuiltinOperator[name]: table for table, names in _tables().values() for name in names}


def operator_options(opcode: BuiltinOperator) -> OptionsTable | None:
    """Return the options table of an operator, or None where its options have no field."""
    return _table_of_operator().get(opcode)


def table_names() -> tuple[str, ...]:
    """Every options table with at least one field."""
    return tuple(_tables())
