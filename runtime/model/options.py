"""The options of every builtin operator: field names, slots, types and defaults of `schema.fbs`.

A table is written in the schema's own order, `name:type` or `name:type=default`; `_` is a deprecated slot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from runtime.model import schema
from runtime.model.schema import BuiltinOperator

_BUILTIN_OPTIONS: Mapping[str, tuple[int, str]] = {
    "Conv2DOptions": (
        1,
        (
            "padding:Padding stride_w:int stride_h:int fused_activation_function:ActivationFunctionType "
            "dilation_w_factor:int=1 dilation_h_factor:int=1 quantized_bias_type:TensorType"
        ),
    ),
    "DepthwiseConv2DOptions": (
        2,
        (
            "padding:Padding stride_w:int stride_h:int depth_multiplier:int "
            "fused_activation_function:ActivationFunctionType dilation_w_factor:int=1 "
            "dilation_h_factor:int=1"
        ),
    ),
    "ConcatEmbeddingsOptions": (
        3,
        "num_channels:int num_columns_per_channel:[int] embedding_dim_per_channel:[int]",
    ),
    "LSHProjectionOptions": (4, "type:LSHProjectionType"),
    "Pool2DOptions": (
        5,
        (
            "padding:Padding stride_w:int stride_h:int filter_width:int filter_height:int "
            "fused_activation_function:ActivationFunctionType"
        ),
    ),
    "SVDFOptions": (
        6,
        "rank:int fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool",
    ),
    "RNNOptions": (7, "fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool"),
    "FullyConnectedOptions": (
        8,
        (
            "fused_activation_function:ActivationFunctionType "
            "weights_format:FullyConnectedOptionsWeightsFormat keep_num_dims:bool "
            "asymmetric_quantize_inputs:bool quantized_bias_type:TensorType quant_spec:[ubyte]"
        ),
    ),
    "SoftmaxOptions": (9, "beta:float"),
    "ConcatenationOptions": (10, "axis:int fused_activation_function:ActivationFunctionType"),
    "AddOptions": (11, "fused_activation_function:ActivationFunctionType pot_scale_int16:bool=true"),
    "L2NormOptions": (12, "fused_activation_function:ActivationFunctionType"),
    "LocalResponseNormalizationOptions": (13, "radius:int bias:float alpha:float beta:float"),
    "LSTMOptions": (
        14,
        (
            "fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float "
            "kernel_type:LSTMKernelType asymmetric_quantize_inputs:bool"
        ),
    ),
    "ResizeBilinearOptions": (15, "_ _ align_corners:bool half_pixel_centers:bool"),
    "CallOptions": (16, "subgraph:uint"),
    "ReshapeOptions": (17, "new_shape:[int]"),
    "SkipGramOptions": (18, "ngram_size:int max_skip_size:int include_all_ngrams:bool"),
    "SpaceToDepthOptions": (19, "block_size:int"),
    "EmbeddingLookupSparseOptions": (20, "combiner:CombinerType"),
    "MulOptions": (21, "fused_activation_function:ActivationFunctionType"),
    "GatherOptions": (23, "axis:int batch_dims:int"),
    "ReducerOptions": (27, "keep_dims:bool"),
    "SubOptions": (28, "fused_activation_function:ActivationFunctionType pot_scale_int16:bool=true"),
    "DivOptions": (29, "fused_activation_function:ActivationFunctionType"),
    "SqueezeOptions": (30, "squeeze_dims:[int]"),
    "SequenceRNNOptions": (
        31,
        "time_major:bool fused_activation_function:ActivationFunctionType asymmetric_quantize_inputs:bool",
    ),
    "StridedSliceOptions": (
        32,
        "begin_mask:int end_mask:int ellipsis_mask:int new_axis_mask:int shrink_axis_mask:int offset:bool",
    ),
    "SplitOptions": (35, "num_splits:int"),
    "CastOptions": (37, "in_data_type:TensorType out_data_type:TensorType"),
    "ArgMaxOptions": (40, "output_type:TensorType"),
    "TransposeConvOptions": (
        49,
        (
            "padding:Padding stride_w:int stride_h:int fused_activation_function:ActivationFunctionType "
            "quantized_bias_type:TensorType"
        ),
    ),
    "SparseToDenseOptions": (50, "validate_indices:bool"),
    "ShapeOptions": (55, "out_type:TensorType"),
    "ArgMinOptions": (57, "output_type:TensorType"),
    "FakeQuantOptions": (58, "min:float max:float num_bits:int narrow_range:bool"),
    "PackOptions": (59, "values_count:int axis:int"),
    "OneHotOptions": (61, "axis:int"),
    "UnpackOptions": (64, "num:int axis:int"),
    "BidirectionalSequenceLSTMOptions": (
        69,
        (
            "fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float "
            "merge_outputs:bool time_major:bool=true asymmetric_quantize_inputs:bool"
        ),
    ),
    "BidirectionalSequenceRNNOptions": (
        70,
        (
            "time_major:bool fused_activation_function:ActivationFunctionType merge_outputs:bool "
            "asymmetric_quantize_inputs:bool"
        ),
    ),
    "UnidirectionalSequenceLSTMOptions": (
        71,
        (
            "fused_activation_function:ActivationFunctionType cell_clip:float proj_clip:float "
            "time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool"
        ),
    ),
    "ResizeNearestNeighborOptions": (74, "align_corners:bool half_pixel_centers:bool"),
    "LeakyReluOptions": (75, "alpha:float"),
    "MirrorPadOptions": (77, "mode:MirrorPadMode"),
    "SplitVOptions": (79, "num_splits:int"),
    "UniqueOptions": (80, "idx_out_type:TensorType=INT32"),
    "ReverseSequenceOptions": (87, "seq_dim:int batch_dim:int"),
    "IfOptions": (92, "then_subgraph_index:int else_subgraph_index:int"),
    "WhileOptions": (93, "cond_subgraph_index:int body_subgraph_index:int"),
    "DepthToSpaceOptions": (94, "block_size:int"),
    "BatchMatMulOptions": (101, "adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool"),
    "CumsumOptions": (102, "exclusive:bool reverse:bool"),
    "CallOnceOptions": (103, "init_subgraph_index:int"),
    "Conv3DOptions": (
        106,
        (
            "padding:Padding stride_d:int stride_w:int stride_h:int "
            "fused_activation_function:ActivationFunctionType dilation_d_factor:int=1 "
            "dilation_w_factor:int=1 dilation_h_factor:int=1"
        ),
    ),
    "HashtableOptions": (107, "table_id:int key_dtype:TensorType value_dtype:TensorType"),
    "VarHandleOptions": (111, "container:string shared_name:string"),
    "RandomOptions": (114, "seed:long seed2:long"),
    "BucketizeOptions": (115, "boundaries:[float]"),
    "GeluOptions": (116, "approximate:bool"),
}

_BUILTIN_OPTIONS_2: Mapping[str, tuple[int, str]] = {
    "StablehloConcatenateOptions": (1, "dimension:long"),
    "StablehloBroadcastInDimOptions": (2, "broadcast_dimensions:[long]"),
    "StablehloSliceOptions": (3, "start_indices:[long] limit_indices:[long] strides:[long]"),
    "StablehloConvolutionOptions": (
        4,
        (
            "window_strides:[long] padding:[long] lhs_dilation:[long] rhs_dilation:[long] "
            "window_reversal:[bool] input_batch_dimension:long input_feature_dimension:long "
            "input_spatial_dimensions:[long] kernel_input_feature_dimension:long "
            "kernel_output_feature_dimension:long kernel_spatial_dimensions:[long] "
            "output_batch_dimension:long output_feature_dimension:long output_spatial_dimensions:[long] "
            "feature_group_count:long batch_group_count:long precision_config:[StablehloPrecisionConfig]"
        ),
    ),
    "StablehloCustomCallOptions": (
        5,
        (
            "call_target_name:string has_side_effect:bool backend_config:string api_version:int "
            "called_computations:[int] custom_attributes:[ubyte]"
        ),
    ),
    "StablehloReduceOptions": (6, "dimensions:[long] body_subgraph_index:int"),
    "StablehloScatterOptions": (
        7,
        (
            "indices_are_sorted:bool update_window_dims:[long] inserted_window_dims:[long] "
            "scatter_dims_to_operand_dims:[long] index_vector_dim:long unique_indices:bool "
            "update_computation_subgraph_index:int"
        ),
    ),
    "StablehloCompareOptions": (
        8,
        "comparison_direction:StablehloComparisonDirection compare_type:StablehloComparisonType",
    ),
    "StablehloDynamicSliceOptions": (9, "slice_sizes:[long]"),
    "StablehloPadOptions": (10, "edge_padding_low:[long] edge_padding_high:[long] interior_padding:[long]"),
    "StablehloIotaOptions": (11, "iota_dimension:long"),
    "StablehloDotGeneralOptions": (
        12,
        (
            "lhs_batching_dimensions:[long] rhs_batching_dimensions:[long] "
            "lhs_contracting_dimensions:[long] rhs_contracting_dimensions:[long] "
            "precision_config:[StablehloPrecisionConfig]"
        ),
    ),
    "StablehloReduceWindowOptions": (
        13,
        (
            "window_dimensions:[long] window_strides:[long] base_dilations:[long] window_dilations:[long] "
            "padding:[long] body_subgraph_index:int"
        ),
    ),
    "StablehloSortOptions": (14, "dimension:long is_stable:bool comparator_subgraph_index:int"),
    "StablehloWhileOptions": (15, "cond_subgraph_index:int body_subgraph_index:int"),
    "StablehloGatherOptions": (
        16,
        (
            "offset_dims:[long] collapsed_slice_dims:[long] start_index_map:[long] index_vector_dim:long "
            "slice_sizes:[long] indices_are_sorted:bool"
        ),
    ),
    "StablehloTransposeOptions": (17, "permutation:[long]"),
    "StablehloRngBitGeneratorOptions": (19, "algorithm:RngAlgorithm"),
    "ReduceWindowOptions": (20, "reduce_function:ReduceWindowFunction"),
    "StableHLOCompositeOptions": (
        21,
        (
            "name:string decomposition_subgraph_index:int composite_attributes:[ubyte] "
            "composite_attributes_format:CustomOptionsFormat version:int"
        ),
    ),
    "StablehloCaseOptions": (23, "branch_subgraph_indices:[int]"),
}

_USERS: Mapping[str, str] = {
    "Conv2DOptions": "CONV_2D",
    "DepthwiseConv2DOptions": "DEPTHWISE_CONV_2D",
    "Conv3DOptions": "CONV_3D CONV_3D_TRANSPOSE",
    "TransposeConvOptions": "TRANSPOSE_CONV",
    "Pool2DOptions": "AVERAGE_POOL_2D MAX_POOL_2D L2_POOL_2D",
    "FullyConnectedOptions": "FULLY_CONNECTED",
    "BatchMatMulOptions": "BATCH_MATMUL",
    "SoftmaxOptions": "SOFTMAX",
    "ConcatenationOptions": "CONCATENATION",
    "AddOptions": "ADD",
    "SubOptions": "SUB",
    "MulOptions": "MUL",
    "DivOptions": "DIV",
    "L2NormOptions": "L2_NORMALIZATION",
    "LocalResponseNormalizationOptions": "LOCAL_RESPONSE_NORMALIZATION",
    "LSTMOptions": "LSTM",
    "UnidirectionalSequenceLSTMOptions": "UNIDIRECTIONAL_SEQUENCE_LSTM",
    "BidirectionalSequenceLSTMOptions": "BIDIRECTIONAL_SEQUENCE_LSTM",
    "RNNOptions": "RNN",
    "SequenceRNNOptions": "UNIDIRECTIONAL_SEQUENCE_RNN",
    "BidirectionalSequenceRNNOptions": "BIDIRECTIONAL_SEQUENCE_RNN",
    "SVDFOptions": "SVDF",
    "ResizeBilinearOptions": "RESIZE_BILINEAR",
    "ResizeNearestNeighborOptions": "RESIZE_NEAREST_NEIGHBOR",
    "ReshapeOptions": "RESHAPE",
    "SqueezeOptions": "SQUEEZE",
    "SpaceToDepthOptions": "SPACE_TO_DEPTH",
    "DepthToSpaceOptions": "DEPTH_TO_SPACE",
    "GatherOptions": "GATHER",
    "ReducerOptions": "MEAN SUM REDUCE_PROD REDUCE_MAX REDUCE_MIN REDUCE_ANY REDUCE_ALL",
    "CumsumOptions": "CUMSUM",
    "SplitOptions": "SPLIT",
    "SplitVOptions": "SPLIT_V",
    "StridedSliceOptions": "STRIDED_SLICE",
    "PackOptions": "PACK",
    "UnpackOptions": "UNPACK",
    "CastOptions": "CAST",
    "ArgMaxOptions": "ARG_MAX",
    "ArgMinOptions": "ARG_MIN",
    "ShapeOptions": "SHAPE",
    "OneHotOptions": "ONE_HOT",
    "MirrorPadOptions": "MIRROR_PAD",
    "UniqueOptions": "UNIQUE",
    "ReverseSequenceOptions": "REVERSE_SEQUENCE",
    "FakeQuantOptions": "FAKE_QUANT",
    "LeakyReluOptions": "LEAKY_RELU",
    "GeluOptions": "GELU",
    "SparseToDenseOptions": "SPARSE_TO_DENSE",
    "EmbeddingLookupSparseOptions": "EMBEDDING_LOOKUP_SPARSE",
    "LSHProjectionOptions": "LSH_PROJECTION",
    "ConcatEmbeddingsOptions": "CONCAT_EMBEDDINGS",
    "SkipGramOptions": "SKIP_GRAM",
    "IfOptions": "IF",
    "WhileOptions": "WHILE",
    "CallOptions": "CALL",
    "CallOnceOptions": "CALL_ONCE",
    "HashtableOptions": "HASHTABLE",
    "VarHandleOptions": "VAR_HANDLE",
    "BucketizeOptions": "BUCKETIZE",
    "RandomOptions": "RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL",
    "StablehloConcatenateOptions": "STABLEHLO_CONCATENATE",
    "StablehloBroadcastInDimOptions": "STABLEHLO_BROADCAST_IN_DIM",
    "StablehloSliceOptions": "STABLEHLO_SLICE",
    "StablehloConvolutionOptions": "STABLEHLO_CONVOLUTION",
    "StablehloCustomCallOptions": "STABLEHLO_CUSTOM_CALL",
    "StablehloReduceOptions": "STABLEHLO_REDUCE",
    "StablehloScatterOptions": "STABLEHLO_SCATTER",
    "StablehloCompareOptions": "STABLEHLO_COMPARE",
    "StablehloDynamicSliceOptions": "STABLEHLO_DYNAMIC_SLICE",
    "StablehloPadOptions": "STABLEHLO_PAD",
    "StablehloIotaOptions": "STABLEHLO_IOTA",
    "StablehloDotGeneralOptions": "STABLEHLO_DOT_GENERAL",
    "StablehloReduceWindowOptions": "STABLEHLO_REDUCE_WINDOW",
    "StablehloSortOptions": "STABLEHLO_SORT",
    "StablehloWhileOptions": "STABLEHLO_WHILE",
    "StablehloGatherOptions": "STABLEHLO_GATHER",
    "StablehloTransposeOptions": "STABLEHLO_TRANSPOSE",
    "StablehloRngBitGeneratorOptions": "STABLEHLO_RNG_BIT_GENERATOR",
    "StablehloCaseOptions": "STABLEHLO_CASE",
    "ReduceWindowOptions": "REDUCE_WINDOW",
    "StableHLOCompositeOptions": "STABLEHLO_COMPOSITE",
}


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
    code = _CODES.get(kind) or _ENUM_CODES.get(kind, "b")
    return OptionField(name, slot, code, is_vector, _default(code, is_vector, enum, written), enum)


def _default(code: str, is_vector: bool, enum: type[IntEnum] | None, written: str) -> Any:
    if is_vector:
        return b"" if code == "B" else ()
    if enum is not None:
        return enum[written] if written else enum(0)
    if code == "s":
        return ""
    if code == "?":
        return written == "true"
    return float(written or 0) if code == "f" else int(written or 0)


@cache
def options_table(name: str) -> OptionsTable:
    """Return the table called `name`, such as "Conv2DOptions". Raises KeyError for a name the schema
    lacks.
    """
    second = name in _BUILTIN_OPTIONS_2
    union_value, text = (_BUILTIN_OPTIONS_2 if second else _BUILTIN_OPTIONS)[name]
    parts = enumerate(text.split())
    return OptionsTable(name, union_value, second, tuple(_field(s, p) for s, p in parts if p != "_"))


@cache
def _table_of_operator() -> dict[BuiltinOperator, str]:
    return {BuiltinOperator[op]: table for table, ops in _USERS.items() for op in ops.split()}


def operator_options(opcode: BuiltinOperator) -> OptionsTable | None:
    """Return the options table of an operator, or None if its options have no field."""
    name = _table_of_operator().get(opcode)
    return options_table(name) if name else None


def table_names() -> tuple[str, ...]:
    """Every options table with at least one field."""
    return (*_BUILTIN_OPTIONS, *_BUILTIN_OPTIONS_2)
