"""Says in at most ten minutes what there is to know of a machine with a GPU that nobody has tried before.

    make first-contact           (python -m benchmarks.first_contact [--device INDEX] [--minutes 10])

In turn: drivers and libraries, the probe, CUDA stage by stage, launches and copies, the matrix product in
each tile beside the vendor's library (through torch, where it is installed), every operator against the CPU
path, an attempt with the sandbox and without, and ten models on each interface. Every step runs in a process
of its own. One that fails, hangs or has no time left is reported with its reason, and the others go on.
Beside each measurement stands what the static check of the kernels (`benchmarks/results/gpu_static.json`) and
the assumptions of the plans let expect. Writes benchmarks/results/first_contact.json and .md. Ends with 1
where a step failed.
"""

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from agent.devices import ProbeError, check, probe
from benchmarks.first_contact_cuda import STAGES
from benchmarks.gpu_compilers import NVIDIA, TARGETS
from benchmarks.gpu_static import RESULT as STATIC
from benchmarks.output import RESULTS, FailedError, in_a_process, parser, said_by, table, write_report
from runtime.delegates.gpu.settings.options import INTERFACES
from tests.tree import tree

MODELS: Final = (
    "torchvision_mobilenet_v3_small", "torchvision_mobilenet_v2", "torchvision_resnet18",
    "torchvision_squeezenet1_1", "torchvision_efficientnet_b0", "torchvision_mobilenet_v2__static_int8",
    "hf_distilbert", "torchvision_resnet50", "torchvision_swin_tiny", "u2net_lite",
)  # fmt: skip
"""Convolutions, transformers, integers and large maps, the small ones first: they run where time runs out."""

SHARES_S: Final = {
    "drivers": 20, "probe": 60, "cuda": 15, "host": 60, "gemm": 90, "operators": 180, "sandbox": 100,
}  # fmt: skip
"""Most seconds of each step, and of each stage of `cuda`. Together they leave the models 15 seconds of the
ten minutes, and what is not used."""

MODEL_S: Final = 60
"""Most seconds of one model on one interface: a driver that compiles for longer must not cost all others."""

ENQUEUE_US: Final = 4.0
"""Microseconds of the host for an enqueue, and between two launches on the device below: assumed for GPUs
before one was measured, of the order that others published for CUDA. Larger predicts longer runs of models
with many small launches."""

GAP_US: Final = 2.2

Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """A step as it ended: `done`, `failed` or `skipped`, and why."""

    name: str
    status: str
    seconds: float = 0.0
    why: str = ""
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A prediction of a quantity beside its measurement."""

    what: str
    unit: str
    predicted: float
    measured: float


class Contact:
    """The steps of one run, on one device (an index of OpenCL; None: the first GPU), until a time.

    `ended` is called behind each step: what is known by then stays, even if the machine does not.
    """

    def __init__(
        self, device: int | None, minutes: float, ended: "Callable[[Contact], object]" = lambda _: None
    ) -> None:
        self._device = () if device is None else ("--device", str(device))
        self._end_s = time.monotonic() + 60 * minutes
        self.steps: list[Step] = []
        self._ended = ended

    def run(self, names: Sequence[str], models: Sequence[str]) -> None:
        """Run the steps of these names, and the models with the time that is left."""
        for name in names:
            if name == "cuda":
                self._cuda()
            else:
                self._step(name, SHARES_S[name], self._work(name))
        present = self._interfaces()
        for name in INTERFACES:
            if models and name not in present:
                why = "the probe found no device of this interface"
                self.steps.append(Step(f"models, {name}", "skipped", why=why))
        for model in models:
            for backend in present:
                wanted = ("model", *self._device, "--model", model, "--backend", backend)
                self._step(f"{model}, {backend}", MODEL_S, _child(*wanted))

    def figures(self, name: str) -> Figures:
        """Return what a step found; nothing where it was not done."""
        return next((step.figures for step in self.steps if step.name == name), {})

    def _interfaces(self) -> list[str]:
        """Return the interfaces of the devices that the probe found; all of them where it did not end."""
        devices = self.figures("probe").get("devices")
        if devices is None:
            return list(INTERFACES)
        found = {one["api"] for one in devices}
        found |= {
            name
            for name in INTERFACES
            for one in devices
            if {f"{name}_adapter", f"{name}_uuid"} & one["facts"].keys()
        }
        return [name for name in INTERFACES if name in found]

    def _work(self, name: str) -> Callable[[float], Figures]:
        own = {"drivers": _child("drivers"), "probe": _probe, "host": _child("host", *self._device),
               "gemm": self._gemm, "operators": _operators, "sandbox": _sandbox}  # fmt: skip
        return own[name]

    def _cuda(self) -> None:
        """Go through the stages of CUDA; skip them where its library does not load."""
        if not self.figures("drivers").get("libraries", {}).get("libcuda.so.1", True):
            self.steps.append(Step("cuda", "skipped", why="libcuda.so.1 does not load"))
            return
        for stage in STAGES:
            work = partial(in_a_process, "first_contact_cuda", stage)
            self._step(f"cuda {stage}", SHARES_S["cuda"], lambda limit_s, work=work: work(limit_s=limit_s))

    def _gemm(self, limit_s: float) -> Figures:
        if not self.figures("host"):
            raise FailedError("the peak of the device, by which its size is chosen, is not known")
        peak = str(self.figures("host")["peaks"]["gflops"])
        return _child("gemm", *self._device, "--gflops", peak)(limit_s)

    def _step(self, name: str, share_s: float, work: Callable[[float], Figures]) -> None:
        limit_s = min(share_s, self._end_s - time.monotonic())
        if limit_s <= 1:
            self.steps.append(Step(name, "skipped", why="the time was over"))
            return
        print(f"{name} …", file=sys.stderr, flush=True)
        self.steps.append(_tried(name, limit_s, work))
        self._ended(self)


def _tried(name: str, limit_s: float, work: Callable[[float], Figures]) -> Step:
    """Do a step; return how it ended."""
    began = time.monotonic()
    found: Figures = {}
    try:
        found = work(limit_s)
        why = str(found.get("why", ""))
    except (FailedError, ProbeError) as error:
        why = str(error)
    status = "failed" if why else "done"
    return Step(name, status, round(time.monotonic() - began, 1), why, found)


def _child(*arguments: str) -> Callable[[float], Figures]:
    return lambda limit_s: in_a_process("first_contact_steps", *arguments, limit_s=limit_s)


def _probe(limit_s: float) -> Figures:
    found = probe(timeout_s=limit_s)
    told = {"device_id", "kind", "api", "name", "delegates", "facts"}
    devices = [one.model_dump(include=told) for one in found.devices]
    return {"devices": devices, "missing": {one.kind: one.reason for one in found.missing}}


def _operators(limit_s: float) -> Figures:
    found = [one.model_dump() for one in check(again=True, timeout_s=limit_s).devices]
    faults = [f"{one['device_id']}: {one['fault']}" for one in found if one["fault"]]
    wrong = [f"{one['device_id']}: {', '.join(one['wrong'])} differ" for one in found if one["wrong"]]
    none = [] if found else ["no OpenCL device to check"]
    return {"devices": found, "why": "; ".join(faults + wrong + none)}


def _sandbox(limit_s: float) -> Figures:
    with tempfile.TemporaryDirectory(prefix="farm-first-contact-") as folder:
        out = Path(folder) / "sandbox.json"
        options = ("--rounds", "2", "--seconds", "0.3", "--models", MODELS[0], "--delegates", "gpu")
        said_by("sandbox", *options, "--out", str(out), limit_s=limit_s)
        found: Figures = json.loads(out.read_text())
    return {**found, "why": "" if found["rows"] else "the delegate gpu takes the model on no device here"}


def predictions(contact: Contact) -> Iterator[Prediction]:
    """Set what the static check and the plans' assumptions let expect beside what was measured."""
    host = contact.figures("host")
    if not host:
        return
    us, peaks = host["us"], host["peaks"]
    yield Prediction("host, an enqueue", "us", ENQUEUE_US, us["enqueue of a launch"])
    yield Prediction("device, a launch in a queue", "us", GAP_US, us["a launch in a queue"])
    shares = fma_shares(json.loads(STATIC.read_text(encoding="utf-8")), str(host["target"]))
    for row in contact.figures("gemm").get("tiles", ()):
        share = shares.get(row.get("function", ""))
        if share is not None:
            what = f"product, {row['tile']}, {row['precision']}"
            yield Prediction(what, "GFLOP/s", round(share * peaks["gflops"], 1), row["gflops"])
    for found in (step.figures for step in contact.steps if "rows" in step.figures):
        if found.get("backend") == "opencl":
            kernels = sum(_kernel_us(row, peaks, shares) for row in found["rows"])
            measured = sum(row["us"] for row in found["rows"])
            count = len(found["rows"])
            yield Prediction(f"{found['model']}, {count} kernels", "us", round(kernels), round(measured))
            expected = max(kernels + GAP_US * count, ENQUEUE_US * count)
            yield Prediction(f"{found['model']}, a run", "us", round(expected), found["run_us"])


def fma_shares(rows: Sequence[Figures], target: str) -> dict[str, float]:
    """Return the share of multiply-adds in the inner loop by families of kernels, on the compiled target that
    is nearest: of NVIDIA's the newest that is not newer, and the newest of all for what is not known.
    """
    older = [one for one in NVIDIA if _number(one) <= _number(target)] if target.startswith("sm_") else []
    nearest = target if target in TARGETS else (older or list(NVIDIA))[-1]
    found: dict[str, float] = {}
    for row in rows:
        # Its rows are in the order of work: the first of a family has most of it.
        found.setdefault(row["family"], row["targets"][nearest]["fma_share"])
    return found


def _number(target: str) -> int:
    return int(re.sub(r"\D", "", target) or 0)


def _kernel_us(row: Figures, peaks: Figures, shares: Mapping[str, float]) -> float:
    """Return the time of a kernel at the roofline, whose roof of arithmetic the inner loop's share lowers."""
    arithmetic = row["flops"] / (1e3 * peaks["gflops"] * (shares.get(row["name"]) or 1.0))
    return float(max(arithmetic, row["bytes"] / (1e3 * peaks["gigabytes"])))


def page(contact: Contact, told: Sequence[Prediction]) -> list[str]:
    """Return the report: one page."""
    host = contact.figures("host")
    kind = (
        "a GPU" if host.get("is_gpu") else "**a processor, not a GPU**: its figures say that the steps work"
    )
    device = (
        f"{host['device']} ({host['platform']}, driver {host['driver']}), {kind}" if host else "not known"
    )
    products = [row for row in contact.figures("gemm").get("tiles", ()) if "gflops" in row]
    tiles = list(dict.fromkeys(row["tile"] for row in products))
    by = {(row["precision"], row["tile"]): row["gflops"] for row in products}
    models = [step for step in contact.steps if ", " in step.name]
    return [
        "# First contact",
        "",
        f"Device: {device}.",
        *_machine(contact),
        "",
        *table(("step", "ended", "s", "why"), ((s.name, s.status, s.seconds, s.why) for s in contact.steps)),
        "",
        *(f"- {name}: {value} us" for name, value in host.get("us", {}).items()),
        *(f"- the product by {name}: {value} GFLOP/s"
          for name, value in contact.figures("gemm").get("libraries", {}).items() if name != "why"),
        *(f"- sandbox, {row['model']}: with / without, init {row['init']['ratio']:.2f}, p50 "
          f"{row['p50']['ratio']:.2f}" for row in contact.figures("sandbox").get("rows", ())),
        "",
        *table((f"product of {contact.figures('gemm').get('side', '?')}, GFLOP/s", *tiles),
               ((p, *(by.get((p, t), "") for t in tiles)) for p in dict.fromkeys(p for p, _ in by))),
        "",
        *table(("model", "interface", "first run s", "run us", "kernels", "kernels us", "error"),
               ((m.figures["model"], m.figures["backend"], m.figures["first_s"], m.figures["run_us"],
                 len(m.figures["rows"]), f"{sum(r['us'] for r in m.figures['rows']):.0f}",
                 f"{m.figures['error']:.1e}") for m in models if m.figures)),
        "",
        f"Expected by peaks, inner loops, {ENQUEUE_US} us an enqueue, {GAP_US} us a launch; and measured:",
        "",
        *table(("what", "unit", "expected", "measured", "measured / expected"),
               ((p.what, p.unit, p.predicted, p.measured, f"{p.measured / p.predicted:.2f}")
                for p in told)),
    ]  # fmt: skip


def _machine(contact: Contact) -> Iterator[str]:
    """Yield what there is of drivers, and which devices the probe lists."""
    found = contact.figures("drivers")
    if found:
        libraries = [name for name, loads in found["libraries"].items() if loads]
        packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
        yield f"Machine: {found['system']}; {packages}."
        yield f"Libraries that load: {', '.join(libraries) or 'none'}; ICD files: {found['icd'] or 'none'};"
        yield f"device nodes: {', '.join(found['nodes']) or 'none'}."
        yield from found["nvidia-smi"]
    for one in contact.figures("probe").get("devices", ()):
        yield f"Probe: {one['device_id']}, {one['name']}: {', '.join(one['delegates'])}."


def main() -> int:
    """Run the steps, print and write the report."""
    options, began = parser(__doc__, RESULTS / "first_contact.json"), tree()
    options.add_argument("--device", type=int, help="index of an OpenCL device; the first GPU by default")
    options.add_argument("--minutes", type=float, default=10.0, help="no step goes on after these (10)")
    options.add_argument("--steps", nargs="*", choices=SHARES_S, default=list(SHARES_S))
    options.add_argument("--models", nargs="*", default=list(MODELS), help="names of skeletons")
    args = options.parse_args()

    def written(contact: Contact, status: int | None = None) -> list[str]:
        told = list(predictions(contact))
        lines = page(contact, told)
        figures = {"steps": list(map(asdict, contact.steps)), "predictions": list(map(asdict, told))}
        write_report(args.out, figures, lines, began, status)
        return lines

    contact = Contact(args.device, args.minutes, written)
    contact.run(args.steps, args.models)
    status = int(any(step.status == "failed" for step in contact.steps))
    print("\n".join(written(contact, status)))
    return status


if __name__ == "__main__":
    sys.exit(main())
