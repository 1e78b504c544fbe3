"""Says in at most ten minutes what there is to know of a machine with a GPU that nobody has tried before.

    make first-contact           (python -m benchmarks.first_contact [--device INDEX] [--minutes 10])

In turn: drivers and libraries, the probe, CUDA stage by stage, launches and copies, the matrix product in
each tile beside the vendor's library (through torch, where it is installed), every operator against the CPU
path, an attempt with the sandbox and without, and ten models on each interface. Every step runs in a process
of its own. One that fails, hangs or has no time left is reported with its reason, and the others go on. A
model that would take too long on an interface, by what smaller ones took there, is not begun: software
adapters run small ones alone. Beside each measurement stands what the static check of the kernels
(`benchmarks/results/gpu_static.json`) and the assumptions of the plans let expect. Writes
benchmarks/results/first_contact.json and .md. Ends with 1 where a step failed.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from agent.devices import ProbeError, check, probe
from benchmarks.first_contact_cuda import STAGES
from benchmarks.first_contact_report import Figures, Step, figures_of, page, predictions
from benchmarks.output import RESULTS, FailedError, LateError, in_a_process, parser, said_by, write_report
from runtime.delegates.gpu.settings.options import INTERFACES
from tests.tree import tree

MODELS: Final = (
    "torchvision_mobilenet_v3_small", "torchvision_mobilenet_v2", "torchvision_resnet18",
    "torchvision_squeezenet1_1", "torchvision_efficientnet_b0", "torchvision_mobilenet_v2__static_int8",
    "hf_distilbert", "torchvision_resnet50", "torchvision_swin_tiny", "u2net_lite",
)  # fmt: skip
"""Convolutions, transformers, integers and large maps, the small ones first: they run where time runs out."""

SHARES_S: Final = {
    "drivers": 20, "probe": 60, "cuda": 10, "host": 60, "gemm": 90, "operators": 180, "sandbox": 100,
}  # fmt: skip
"""Most seconds of each step, and of each stage of `cuda`. Together they leave the models 20 seconds of the
ten minutes, and what is not used."""

MODEL_S: Final = 60
"""Most seconds of one model on one interface: a driver that compiles for longer must not cost all others."""

SLOW_RUNS: Final = 8
"""Runs that the step of a model makes at most where a run takes a second or more."""


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
        for backend in present:
            for model in models:
                self._model(model, backend)

    def figures(self, name: str) -> Figures:
        """Return what a step found; nothing where it was not done."""
        return figures_of(self.steps, name)

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

    def _model(self, model: str, backend: str) -> None:
        """Run a model on an interface, unless it would end too late."""
        name, limit_s = f"{model}, {backend}", min(MODEL_S, self._left_s())
        expected = expected_s(self.steps, model, backend)
        # With a second or less, `_step` says that the time was over.
        if expected > limit_s > 1:
            why = f"it would take about {expected:.0f} s on {self._adapter(backend)}, and has {limit_s:.0f}"
            self.steps.append(Step(name, "skipped", why=why))
            return
        wanted = ("model", *self._device, "--model", model, "--backend", backend)
        self._step(name, MODEL_S, _child(*wanted))

    def _adapter(self, backend: str) -> str:
        devices = self.figures("probe").get("devices", ())
        adapters = (one["facts"].get(f"{backend}_adapter") for one in devices)
        return next(filter(None, adapters), backend)

    def _left_s(self) -> float:
        return self._end_s - time.monotonic()

    def _work(self, name: str) -> Callable[[float], Figures]:
        own = {"drivers": _child("drivers"), "probe": _probe, "host": _child("host", *self._device),
               "gemm": self._gemm, "operators": _operators, "sandbox": _sandbox}  # fmt: skip
        return own[name]

    def _cuda(self) -> None:
        """Go through the stages of CUDA; skip them where its library does not load."""
        # Where the step `drivers` did not end, the stages find out themselves.
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
        left_s = self._left_s()
        if left_s <= 1:
            self.steps.append(Step(name, "skipped", why="the time was over"))
            return
        print(f"{name} …", file=sys.stderr, flush=True)
        self.steps.append(_tried(name, min(share_s, left_s), work, is_cut=left_s < share_s))
        self._ended(self)


def _tried(name: str, limit_s: float, work: Callable[[float], Figures], *, is_cut: bool) -> Step:
    """Do a step; return how it ended. `is_cut`: it has less time than its share."""
    began = time.monotonic()
    found: Figures = {}
    status = "failed"
    try:
        found = work(limit_s)
        why = str(found.get("why", ""))
    except LateError as error:
        why = str(error)
        if is_cut:
            status, why = "skipped", f"the time was over: {error}"
    except (FailedError, ProbeError) as error:
        why = str(error)
    return Step(name, status if why else "done", round(time.monotonic() - began, 1), why, found)


def expected_s(steps: Sequence[Step], model: str, backend: str) -> float:
    """Return the seconds that a model will take on an interface at most, as far as it can be told: by the
    largest that has run there, and the operations that were counted on another interface.
    """
    found = [step for step in steps if "run_us" in step.figures]
    operations = {step.name: sum(row["flops"] for row in step.figures["rows"]) for step in found}
    own = max((operations[step.name] for step in found if step.figures["model"] == model), default=0)
    there = [step for step in found if step.figures["backend"] == backend and operations[step.name]]
    if not own or not there:
        return 0.0
    largest = max(there, key=lambda step: operations[step.name])
    run_s = largest.figures["run_us"] / 1e6 * own / operations[largest.name]
    return largest.seconds + SLOW_RUNS * run_s


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


def main() -> int:
    """Run the steps, print and write the report."""
    options, began = parser(__doc__, RESULTS / "first_contact.json"), tree()
    options.add_argument("--device", type=int, help="index of an OpenCL device; the first GPU by default")
    options.add_argument("--minutes", type=float, default=10.0, help="no step goes on after these (10)")
    options.add_argument("--steps", nargs="*", choices=SHARES_S, default=list(SHARES_S))
    options.add_argument("--models", nargs="*", default=list(MODELS), help="names of skeletons")
    args = options.parse_args()

    def written(contact: Contact, status: int | None = None) -> list[str]:
        told = list(predictions(contact.steps))
        lines = page(contact.steps, told)
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
