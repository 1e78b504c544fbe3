"""Numbers narrower than float32: a device's findings about them, and the delegate's choice.

`fp16` and `bf16` store the weights of convolutions and matrix products in that type, rounded once; they are
widened in registers, and sums, softmax and normalisations stay float32. Activations do, too, except that with
`fp16` kernels of work-groups leave them for each other in fp16 (`layout/halves.py`). `tf32` stores nothing
narrow, and needs matrix units, which round both sides of a product to TF32. The activations of a
product are rounded too where the device has matrix units for the type; with `bf16` also where a processor
multiplies pairs of bfloat16 by one instruction, and gains time by it: some take four times as long for a pair
as for a product of float32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from runtime.delegates.gpu.capabilities import Capabilities
from runtime.delegates.gpu.settings.options import Options
from runtime.errors import UnsupportedPrecisionError


class Trial(Enum):
    """A test of a probe, compiled, run and compared: a define of `kernels/precision_probe.cl`."""

    FP16_STORAGE = "FP16_STORAGE"
    FP16_ARITHMETIC = "FP16_ARITHMETIC"
    BF16_STORAGE = "BF16_STORAGE"
    BF16_PRODUCTS = "BF16_PRODUCTS"
    BF16_PACE = "BF16_PACE"
    INT8_PRODUCTS = "INT8_PRODUCTS"
    INT16_PRODUCTS = "INT16_PRODUCTS"
    BYTE_TABLES = "BYTE_TABLES"
    BYTE_DOT_PRODUCTS = "BYTE_DOT_PRODUCTS"

    @property
    def title(self) -> str:
        """For reports."""
        return self.value.lower().replace("_", " ")


_NEEDED = {"fp16": Trial.FP16_STORAGE, "bf16": Trial.BF16_STORAGE}
"""Precision → the trial without which it cannot be used; the others only decide how it is computed."""


_MULTIPLIED = {
    "tf32": (),
    "fp16": (),
    "bf16": (Trial.BF16_PRODUCTS, Trial.BF16_PACE),
    "int8": (Trial.INT8_PRODUCTS,),
}
"""Precision → the trials behind which kernels of units multiply in it."""

_MULTIPLIED_IN_GROUPS = {"tf32": (), "fp16": (), "bf16": (), "int8": (Trial.BYTE_DOT_PRODUCTS,)}
"""The same of kernels of work-groups; in tf32, fp16 and bf16 only matrix units do."""

_MATRICES = {"tf32": "TF32", "fp16": "F16", "bf16": "BF16"}
"""Precision → the type that matrix units multiply in it."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of a probe: the fault of each trial, empty for one that passed.

    `matrix_types`: the types, F16, BF16 and TF32, that the device's matrix units multiply.
    """

    faults: Mapping[Trial, str] = field(default_factory=dict)
    matrix_types: tuple[str, ...] = ()

    def passed(self, trial: Trial) -> bool:
        """Return True if the device passed the trial with right numbers."""
        # A trial that nobody made is absent, and has not been passed either.
        return self.faults.get(trial) == ""

    @property
    def multiplies_bf16(self) -> bool:
        """True if pairs of bfloat16 are multiplied by one instruction, rightly and faster than floats."""
        return all(map(self.passed, _MULTIPLIED["bf16"]))

    def matrix_type(self, precision: str) -> str:
        """Return the type that matrix units multiply in a precision; empty where they do not."""
        wanted = _MATRICES.get(precision, "")
        return wanted if wanted in self.matrix_types else ""

    @property
    def able(self) -> str:
        """The trials that passed, for people."""
        return ", ".join(trial.title for trial in self.faults if self.passed(trial)) or "no narrow numbers"

    def __str__(self) -> str:
        told = [
            f"{trial.title}: {f'no ({fault})' if fault else 'yes'}" for trial, fault in self.faults.items()
        ]
        units = [f"matrix units: {', '.join(self.matrix_types)}"] if self.matrix_types else []
        return "; ".join((*told, *units))


STORED: Final = Findings({Trial.FP16_STORAGE: "", Trial.BF16_STORAGE: ""})
"""What is known of a device that was not probed: kernels of work-groups widen weights by arithmetic on their
bits, which every device has, and fp16 of activations by a conversion that their languages demand of it."""


def untried(backend: str) -> Findings:
    """Return what is known on a backend that tries nothing."""
    return Findings({**dict.fromkeys(Trial, f"the backend {backend} does not try it"), **STORED.faults})


def knowing_bytes(device: Capabilities, findings: Findings) -> Capabilities:
    """Return the device with what it was found to do with bytes."""
    return replace(
        device,
        multiplies_bytes=findings.passed(Trial.INT8_PRODUCTS),
        multiplies_shorts=findings.passed(Trial.INT16_PRODUCTS),
        permutes_bytes=findings.passed(Trial.BYTE_TABLES),
    )


def gains_by_integers(device: Capabilities, *, quantises_rows: bool) -> bool:
    """Return True where integers are faster than real numbers rounded to the levels.

    They are with bytes multiplied by one instruction; with pairs of shorts only where no rows are quantised
    in every run (`quantises_rows`), which costs more than those products gain over float32's.
    """
    gains = device.multiplies_bytes or (device.multiplies_shorts and not quantises_rows)
    return gains and not device.works_in_groups


def knowing_products(device: Capabilities, precision: str, findings: Callable[[], Findings]) -> Capabilities:
    """Return the device with the products of narrow numbers that it is to compute in a precision."""
    # Before `findings` is called, which probes the device: nothing below concerns fp32 and int8.
    if precision not in _MATRICES:
        return device
    found = findings()
    multiplies_bf16 = precision == "bf16" and found.multiplies_bf16
    return replace(
        device,
        multiplies_bf16=multiplies_bf16,
        matrix_type=found.matrix_type(precision),
        stores_halves=precision == "fp16" and device.works_in_groups,
    )


def meaning(precision: str, device: Capabilities) -> str:
    """Describe the arithmetic of a precision, for reports."""
    if precision == "int8":
        return "integers of quantised tensors, float32 of others"
    if precision == "fp32":
        return "float32"
    if device.stores_halves:
        rounds = ", and the inputs of products are rounded to it" if device.matrix_type else ""
        return f"float32; weights and activations are stored in fp16{rounds}"
    rounds_inputs = device.matrix_type or (device.multiplies_bf16 and not device.works_in_groups)
    rounded = "weights and the inputs of products" if rounds_inputs else "weights alone"
    return f"float32; {rounded} are rounded to {precision}"


def settled(options: Options, device: Capabilities, findings: Callable[[], Findings]) -> str:
    """Return the precision that is used: the requested one, or fp16 if losses are allowed and it is stored.

    `findings` probes the device, which fp32 does not need, and int8 only to know how it multiplies.

    Raises:
        UnsupportedPrecisionError: the device cannot do what was asked for; the text says why.
    """
    # Of fp16 and bf16 narrow weights are left where no product is narrow; of tf32 nothing would be.
    if options.precision == "tf32" or (options.require_narrow_products and options.precision in _MULTIPLIED):
        _require_products(options.precision, device, findings())
    if options.precision in _NEEDED:
        needed = _NEEDED[options.precision]
        if not findings().passed(needed):
            fault = findings().faults.get(needed, "it was not tried")
            raise UnsupportedPrecisionError(
                f"gpu delegate: precision {options.precision!r} cannot be used on {device.name}: "
                f"{needed.title}: {fault}; use 'fp32'"
            )
        return options.precision
    if options.precision in ("tf32", "int8"):
        return options.precision
    is_free = options.precision is None and options.precision_loss_allowed
    return "fp16" if is_free and findings().passed(Trial.FP16_STORAGE) else "fp32"


def _require_products(precision: str, device: Capabilities, findings: Findings) -> None:
    """Raise `UnsupportedPrecisionError` where products would be those of another precision."""
    if findings.matrix_type(precision):
        return
    needed = (_MULTIPLIED_IN_GROUPS if device.works_in_groups else _MULTIPLIED)[precision]
    failed = next((trial for trial in needed if not findings.passed(trial)), None)
    # `needed` is empty where only matrix units multiply in the precision: then no passed trial can save it.
    if failed is None and needed:
        return
    fault = (
        "no kernel multiplies in it" if failed is None else findings.faults.get(failed, "it was not tried")
    )
    remedy = "use 'fp32'" if precision == "tf32" else "use 'fp32', or leave out require_narrow_products"
    raise UnsupportedPrecisionError(
        f"gpu delegate: precision {precision!r}: {fault} ({device.name}); {remedy}"
    )
