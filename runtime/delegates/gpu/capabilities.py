"""Describes a device to lowering, tuning and caches, as plain data of any backend."""

from dataclasses import dataclass
from enum import Enum


class DeviceClass(Enum):
    """The kind of kernels that suit a device; its value is the name that options and reports use.

    CPU: few workers, each of which takes a range of units and computes with vectors of 16 floats. GPU:
    work-groups of many work-items that share local memory, with vectors of at most four floats. LANES: such
    work-groups on a processor, whose work-items are the lanes of its vectors. A load takes one for each lane,
    except where the compiler sees that all are of one place; local memory is no nearer than other, and at a
    barrier the processor changes from one vector to the next.
    """

    CPU = "cpu"
    GPU = "gpu"
    LANES = "lanes"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The properties of a device that lowering and caches read.

    `compute_units` is the number of work-groups that run at the same time, `vector_floats` the number of
    floats in a register (16 with AVX-512, 1 on most GPUs). `compiler` is the platform's version, which names
    the compiler where the driver's does not; `processor` is what `name` does not tell of a CPU device, empty
    for others. `device_class` chooses kernels, whatever the device itself is: tests and plans give a CPU
    device those of a GPU. Without `runs_units` only kernels of work-groups run. `shares_one_kernel`: one
    kernel, `run_layers`, runs all functions, which it calls by their addresses; a backend finds out by
    trying. `multiplies_bf16`: pairs of bfloat16 are to be multiplied by one instruction, which a probe has
    found and the precision allows; `multiplies_bytes`: likewise four bytes by four, which adds up their
    products, and `multiplies_shorts` two shorts by two; `permutes_bytes`: likewise 64 bytes are looked up in
    a table at once. `matrix_type`: the type, F16, BF16 or TF32, that its matrix units are to multiply, as the
    precision allows; empty: none. `stores_halves`: what kernels of work-groups leave for each other lies in
    memory as fp16, as the precision allows. `constants_bytes`: how large a buffer of constants becomes where
    no layer needs more, 0 for `max_allocation_bytes`. `driver_threads`: where the driver's own threads run,
    for people; empty: not known. Sizes are bytes.
    """

    name: str
    vendor: str
    platform: str
    driver: str
    version: str
    is_gpu: bool
    compute_units: int
    vector_floats: int
    max_work_group: int
    local_memory_bytes: int
    max_allocation_bytes: int
    memory_bytes: int
    compiler: str = ""
    processor: str = ""
    device_class: DeviceClass = DeviceClass.CPU
    runs_units: bool = True
    shares_one_kernel: bool = False
    multiplies_bf16: bool = False
    multiplies_bytes: bool = False
    multiplies_shorts: bool = False
    permutes_bytes: bool = False
    constants_bytes: int = 0
    matrix_type: str = ""
    stores_halves: bool = False
    driver_threads: str = ""

    @property
    def works_in_groups(self) -> bool:
        """True where families offer kernels of work-groups, if they have any."""
        return self.device_class is not DeviceClass.CPU

    @property
    def works_in_lanes(self) -> bool:
        """True where families offer kernels whose work-items share nothing, if they have any."""
        return self.device_class is DeviceClass.LANES

    @property
    def has_few_registers(self) -> bool:
        """True on Intel's GPUs: at least 8 work-items share the 4 KiB of registers of a thread.

        That is 128 floats each (oneAPI GPU Optimization Guide); elsewhere an instruction names twice as many.
        """
        return self.is_gpu and "intel" in self.vendor.lower()

    @property
    def is_pocl(self) -> bool:
        """True on PoCL, whose CPU devices run work-groups on a fixed pool of threads."""
        return "portable computing language" in self.platform.lower()

    @property
    def key(self) -> str:
        """Identifies processor, driver and compiler in cache keys."""
        driver = (self.platform, self.driver, self.version, self.compiler)
        return "|".join((*driver, self.name, self.vendor, self.processor))
