"""The options that say how a `CompiledModel` uses a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class GpuOptions:
    """LiteRT's options of the GPU, and the options of our `gpu` delegate by name.

    The delegate computes in 32-bit floats unless `delegate_options` names another `precision`, which
    `enforce_f32` forbids; infinities need no capping.
    The other flags are hints for LiteRT's own delegate. `delegate_options` goes to ours as it is: device,
    tuning, cache_dir, ... (`runtime.delegates.gpu.options`).
    """

    enforce_f32: bool = False
    constant_tensor_sharing: bool = False
    infinite_float_capping: bool = False
    benchmark_mode: bool = False
    allow_src_quantized_fc_conv_ops: bool = False
    hint_waiting_for_completion: bool = False
    delegate_options: Mapping[str, Any] = field(default_factory=dict)
