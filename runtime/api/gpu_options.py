"""The options that say how a `CompiledModel` uses a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from runtime.errors import DelegateError

_CHOICES = {
    "backend": ("automatic", "opencl", "webgpu", "opengl"),
    "precision": ("default", "fp32", "fp16", "fp16_with_fp32_accumulation"),
    "buffer_storage_type": ("default", "buffer", "texture_2d"),
    "wait_type": ("default", "passive", "active", "do_not_wait"),
    "priority": ("default", "low", "normal", "high"),
}
"""What LiteRT knows."""

_NOT_THERE = {
    ("buffer_storage_type", "texture_2d"): "tensors lie in buffers",
    ("priority", "low"): "this delegate has queues of one kind",
    ("priority", "high"): "this delegate has queues of one kind",
}
"""What of it this delegate has not, with the reason."""

_NAMES = {
    "backend": "backend",
    "wait_type": "wait_type",
    "preferred_device_substr": "device",
    "serialization_dir": "serialization_dir",
    "model_cache_key": "model_token",
}
"""Options that are our delegate's under these names, as soon as they are not left at their defaults."""

_REFUSED = {
    "prefer_texture_weights": "weights lie in buffers",
    "program_cache_fd": "kernels are kept in a folder; name it by serialization_dir",
    "weight_cache_fd": "packed weights are kept in a folder; name it by serialization_dir",
    "cache_compiled_programs_only": "packed weights are kept beside the kernels; leave serialization_dir out",
    "serialize_external_tensors": "no tensor is external to the model's file and its own weight files",
    "external_tensor_patterns": "no tensor is external; bind memory of your own by a TensorBuffer",
    "buffer_storage_tensor_patterns": "every tensor lies in a buffer",
    "kernel_batch_size": "a run is enqueued as a whole",
    "num_steps_of_command_buffer_preparations": "kernels are enqueued one by one, not recorded by the driver",
    "num_threads_to_upload": "constants are mapped where they lie",
    "num_threads_to_compile": "kernels are compiled by a process for each core that this one may use",
    "convert_weights_on_gpu": "weights are packed on the host, once for all starts",
    "wait_for_weights_conversion_complete": "a model is compiled when its weights are packed",
    "disable_shader_optimization": "kernels are compiled once, with the driver's optimisations, and kept",
}
"""Options that this delegate cannot follow, with the reason; their defaults are accepted."""


@dataclass
class GpuOptions:
    """LiteRT's options of the GPU, and the options of our `gpu` delegate by name.

    Those that choose something, under the names of LiteRT's C++ interface; enumerations are texts:

    - `enforce_f32`, `precision`: what products are computed in. "fp16" rounds weights and accumulates in
      32 bits, as "fp16_with_fp32_accumulation" does; "default" is 32 bits. A lossy one contradicts the flag.
    - `backend`: "automatic", which is "opencl", or "opencl", "opengl" or "webgpu".
    - `buffer_storage_type`: "default" and "buffer" say where tensors lie here; "texture_2d" is refused.
    - `serialization_dir`, `model_cache_key`: the folder of what later starts find, and a text that is this
      model's own; `serialize_program_cache` false keeps nothing.
    - `wait_type`: how runs wait for the device, as the delegate's option of that name says.
    - `preferred_device_substr`: a part of the device's name.

    Those that this delegate fulfils in any case: `constant_tensor_sharing` (packed weights are a mapped
    file), `infinite_float_capping` (infinities are values), `wait_for_weights_conversion_complete`,
    `hint_fully_delegated_to_single_delegate` and `hint_waiting_for_completion` (it sees both itself),
    `madvise_original_shared_tensors` (the file's weights are given up once they are packed),
    `allow_src_quantized_fc_conv_ops` and `benchmark_mode`. All others are refused with the reason, as soon as
    they are not left at their defaults.

    `delegate_options` goes to our delegate as it is: tuning, threads, ...
    (`runtime.delegates.gpu.settings.options`).
    """

    enforce_f32: bool = False
    constant_tensor_sharing: bool = False
    infinite_float_capping: bool = False
    benchmark_mode: bool = False
    allow_src_quantized_fc_conv_ops: bool = False
    hint_waiting_for_completion: bool = False
    delegate_options: Mapping[str, Any] = field(default_factory=dict)
    backend: str = "automatic"
    precision: str = "default"
    buffer_storage_type: str = "default"
    prefer_texture_weights: bool = False
    serialization_dir: str | None = None
    model_cache_key: str | None = None
    program_cache_fd: int | None = None
    weight_cache_fd: int | None = None
    serialize_program_cache: bool = True
    cache_compiled_programs_only: bool = False
    serialize_external_tensors: bool = False
    external_tensor_patterns: tuple[str, ...] = ()
    buffer_storage_tensor_patterns: tuple[str, ...] = ()
    kernel_batch_size: int = 0
    num_steps_of_command_buffer_preparations: int = 0
    wait_type: str = "default"
    preferred_device_substr: str | None = None
    num_threads_to_upload: int = 0
    num_threads_to_compile: int = 0
    convert_weights_on_gpu: bool = False
    wait_for_weights_conversion_complete: bool = True
    priority: str = "default"
    disable_shader_optimization: bool = False
    hint_fully_delegated_to_single_delegate: bool = False
    madvise_original_shared_tensors: bool = False

    def for_delegate(self) -> dict[str, Any]:
        """Convert the options to those of our `gpu` delegate.

        Raises `DelegateError` for a value that LiteRT does not know, for what this delegate cannot do, and
        where `delegate_options` says something else.
        """
        self._refuse()
        said = {ours: getattr(self, name) for name, ours in _NAMES.items()
                if getattr(self, name) != getattr(GpuOptions, name)}  # fmt: skip
        if self.precision != "default":
            said["precision"] = "fp32" if self.precision == "fp32" else "fp16"
        if self.enforce_f32:
            said["precision_loss_allowed"] = False
        if not self.serialize_program_cache:
            said["cache_dir"] = ""
        for name, value in said.items():
            given = self.delegate_options.get(name, value)
            # As texts: an option may be given as one, as "False" for False.
            if str(given).lower() != str(value).lower():
                raise DelegateError(
                    f"gpu options: delegate_options has {name}={given!r}, and the other options say "
                    f"{value!r}; give one of them"
                )
        return {**said, **self.delegate_options}

    def _refuse(self) -> None:
        """Raise for the first option that this delegate cannot follow, or that LiteRT does not know."""
        for option in fields(self):
            name, value = option.name, getattr(self, option.name)
            allowed = _CHOICES.get(name)
            if allowed and value not in allowed:
                raise DelegateError(f"gpu options: {name} must be one of {', '.join(allowed)}; got {value!r}")
            if allowed and (name, value) in _NOT_THERE:
                raise DelegateError(f"gpu options: {name} {value!r} is not there: {_NOT_THERE[name, value]}")
            if name in _REFUSED and value != option.default:
                raise DelegateError(f"gpu options: {name}={value!r}: {_REFUSED[name]}")
