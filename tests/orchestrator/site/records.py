"""A farm written out by hand: two campaigns with every kind of cell the pages must show."""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

from agent.wire.measurement import (
    Accuracy,
    Delegation,
    DeviceTime,
    Fallback,
    InitStages,
    Installed,
    Latency,
    Measurement,
    MemoryStages,
    ProcessSamples,
    Quality,
    Ratio,
    StartStages,
    Transfer,
    Tuning,
    Variation,
    baseline_id,
)
from agent.wire.messages import Reason, ReasonCode, environment_id
from agent.wire.passes import Pipeline, Sustained, SustainedSlice, Throughput
from agent.wire.profile import Advice, AdvicePiece, Profile, ProfiledOperator, ProfiledRow
from orchestrator.results.records import (
    AttemptRecord,
    CampaignRecord,
    CellGroup,
    CellRecord,
    ManifestRecord,
)
from orchestrator.site.digests import groups_of
from runtime.measure.samples.summary import FLOORS, ProcessTimes, summarise
from runtime.model.facts import ModelFacts

HOST = "bench-01/cpu"
POCL = "bench-01/opencl-0"
CPU_NAME = "AMD EPYC 7B13, 2 cores"
POCL_NAME = f"{CPU_NAME} (OpenCL on CPU)"
NIGHT = datetime(2026, 11, 21, 2, 30, tzinfo=UTC)

HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "../../x",
    "{{7*7}}",
    "invoice\u202etilft.exe",
    "=HYPERLINK(1)",
    "L" * 10_000,
)

MODELS = {
    "face_detection_short_range": (229_032, 164, {"litert": 1.02, "cpu": 9.4, "gpu": 0.83}),
    "face_landmark": (1_241_896, 166, {"litert": 2.31, "cpu": 16.8, "gpu": 1.94}),
    "hand_landmark_lite": (1_957_424, 164, {"litert": 6.12, "cpu": 38.0, "gpu": 6.21}),
    "torchvision_mobilenet_v2": (14_078_620, 65, {"litert": 14.9, "cpu": 62.4, "gpu": 12.2}),
    "torchvision_mobilenet_v3_small": (10_275_200, 114, {"litert": 4.05, "cpu": 24.1, "gpu": 4.94}),
    "torchvision_resnet18": (46_777_560, 32, {"litert": 61.3, "cpu": 118.0, "gpu": 44.0}),
    "torchvision_squeezenet1_1": (5_000_112, 40, {"litert": 15.6, "cpu": 41.0, "gpu": 13.9}),
    "torchvision_efficientnet_b0": (21_403_904, 245, {"litert": 22.0, "cpu": 97.5, "gpu": 24.8}),
    "torchvision_mobilenet_v2__static_int8": (3_809_120, 67, {"litert": 8.8, "cpu": 240.0}),
}


@dataclass(frozen=True)
class HandMadeFarm:
    """Offers what `SiteSource` asks for; `raw` maps a cell id to its processes."""

    campaign_list: tuple[CampaignRecord, ...] = ()
    cell_lists: Mapping[str, tuple[CellRecord, ...]] = field(default_factory=dict)
    raw: Mapping[str, tuple[ProcessSamples, ...]] = field(default_factory=dict)
    facts: Mapping[str, ModelFacts] = field(default_factory=dict)
    manifests: Mapping[str, ManifestRecord] = field(default_factory=dict)

    def campaigns(self) -> Sequence[CampaignRecord]:
        return self.campaign_list

    def cells(self, campaign_id: str) -> Sequence[CellRecord]:
        return self.cell_lists[campaign_id]

    def groups(self) -> Sequence[CellGroup]:
        return groups_of(c for one in self.campaign_list for c in self.cell_lists[one.campaign_id])

    def compared(self, campaign_id: str, model: str | None = None) -> Sequence[CellRecord]:
        return [c for c in self.cell_lists[campaign_id] if model in (None, c.model)]

    def measurements(self, campaign_id: str) -> Mapping[str, str]:
        own = self.cell_lists[campaign_id]
        return {c.cell_id: c.measurement.model_dump_json() for c in own if c.measurement is not None}

    def samples(self, cell: CellRecord) -> Sequence[ProcessSamples]:
        return self.raw.get(cell.cell_id, ())

    def manifest(self, campaign_id: str) -> ManifestRecord | None:
        return self.manifests.get(campaign_id)

    def model_facts(self, sha256: str) -> ModelFacts | None:
        return self.facts.get(sha256)


def processes(
    seed: str, p50_ms: float, count: int = 3, samples: int | None = None
) -> tuple[ProcessSamples, ...]:
    """Plausible samples: log-normal, a few slow ones, a slow start; two seconds per process unless told."""
    rng = random.Random(seed)
    n = samples or max(30, min(1500, round(2000 / p50_ms)))
    made = []
    for index in range(count):
        centre = p50_ms * math.exp(rng.gauss(0, 0.006))
        timed = [centre * math.exp(abs(rng.gauss(0, 0.02))) for _ in range(n)]
        for _ in range(n // 60):
            timed[rng.randrange(n)] *= rng.uniform(1.2, 3.0)
        warm = [centre * (1 + 0.5 * math.exp(-i / 3)) for i in range(12)]
        flags = ("cpu pressure 7.1 % while timing",) if rng.random() < 0.12 else ()
        made.append(
            ProcessSamples(
                index=index,
                cache="warm" if index else "cold",
                init_ns=round((40 if index else 900) * 1e6 * rng.uniform(0.9, 1.1)),
                first_ns=round(p50_ms * 1.9e6),
                warmup_ns=tuple(round(v * 1e6) for v in warm),
                invoke_ns=tuple(round(v * 1e6) for v in timed),
                memory_peak_bytes=round(rng.uniform(12, 90) * 2**20),
                memory_before_bytes=38 * 2**20,
                flags=flags,
                facts={"stop": "min_seconds", "load_1m": "0.42", "pool_sha256": sha(seed)},
            )
        )
    return tuple(made)


def sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def latency(raw: Sequence[ProcessSamples]) -> Latency:
    summary = summarise([ProcessTimes(p.cache, p.init_ns, p.first_ns, p.invoke_ns) for p in raw])
    return Latency(**{name: getattr(summary, name) for name in Latency.model_fields})


def accuracy(verdict: str | None = "pass", delegate: str = "gpu") -> Accuracy:
    if verdict is None:
        return Accuracy(
            reference=None, max_abs=None, rel_l2=None, cosine=None, verdict=None,
            note="ai-edge-litert is not installed, so there is no independent reference",
        )  # fmt: skip
    wrong = verdict == "fail"
    return Accuracy(
        reference="litert-reference 2.3.0, BUILTIN_REF, 1 thread",
        max_abs=0.31 if wrong else 3.6e-6,
        rel_l2=0.42 if wrong else {"cpu": 2.2e-7}.get(delegate, 8.9e-7),
        cosine=0.9121 if wrong else 0.99999999,
        verdict=verdict,
        rule="‖y - r‖ ≤ 0.0001·‖r‖ + 1e-6·√n",
        mean_abs=0.12 if wrong else 4.1e-7,
        top1=0.4 if wrong else 1.0,
        peer_rel_l2=3.1e-7,
    )


def full(operators: int) -> Delegation:
    return Delegation(status="full", delegated_ops=operators, total_ops=operators, partitions=1)


def partial(operators: int, *ops: tuple[int, str, str]) -> Delegation:
    left = tuple(Fallback(index=i, op=op, reason=reason) for i, op, reason in ops)
    return Delegation(
        status="partial",
        delegated_ops=operators - len(left),
        total_ops=operators,
        partitions=3,
        fallbacks=left,
    )


VARIATION = Variation(
    level="process", given_tuning=True, tunings=1, processes=5, sample_sd=0.042, process_sd=0.009,
    tuning_sd=None, sample_s=0.0053, process_s=1.9, tuning_s=3.4, samples_advised=89,
    processes_advised=None, units_advised=6,
)  # fmt: skip
TUNINGS = (Tuning(sha256=sha("tuning"), choices="0c41d29e5a7b=rows 9b07c41d29e5=16", processes=5),)


def init(delegate: str) -> InitStages:
    """Of `gpu` everything, of `cpu` what it has, of the others nothing but the rest."""
    if delegate == "gpu":
        cold = StartStages(parse=0.6, partition=2.4, compile=712.0, tune=88.0, upload=9.1, other=51.0, n=1)
        warm = StartStages(parse=0.5, partition=2.3, compile=21.0, tune=0.4, upload=4.2, other=11.0, n=5)
        return InitStages(cold=cold, warm=warm)
    known = (0.5, 2.1, 3.3) if delegate == "cpu" else (None, None, None)
    parse, partition, compiled = known
    names = {"parse": parse, "partition": partition, "compile": compiled, "tune": None, "upload": None}
    found = [StartStages(**names, other=1.2, n=n) for n in (1, 5)]
    missing = {name: f"{delegate} told no such stage" for name, ms in names.items() if ms is None}
    return InitStages(cold=found[0], warm=found[1], missing=missing)


def memory(delegate: str) -> MemoryStages:
    device = 14_500_000 if delegate == "gpu" else None
    missing = {} if device else {"device": f"{delegate} does not tell what it holds on its device"}
    return MemoryStages(load=14_200_000, ready=31_000_000, steady=33_000_000, device=device, missing=missing)


DEVICE = DeviceTime(busy=4.1, queue_delay=0.02)
TRANSFER = Transfer(
    in_ms=0.021, out_ms=0.002, in_bytes=602_112, out_bytes=4_000, p50_bound_ms=4.4, saved_ms=0.04
)
SILENT = DeviceTime(missing={"busy": "no queue", "queue_delay": "no queue"})
SUSTAINED = Sustained(
    seconds=120.0,
    slices=tuple(
        SustainedSlice(from_s=30.0 * place, p50_ms=p50, runs=9000, clock_mhz=mhz)
        for place, (p50, mhz) in enumerate([(5.3, 3690.0), (5.4, 3688.0), (6.0, 3275.0), (6.1, 3240.0)])
    ),
    end_over_start=6.1 / 5.3,
)
_TIMES = {"time_ns": 4e6, "first_ns": 5e6, "mean_ns": 4e6}
PROFILE = Profile(
    detail="kernels", rounds=10, run_ns=4.5e6, sums_ns=(5_000_000,),
    operators=(ProfiledOperator(
        index=7, name="CONV_2D", tensors="<i>x</i>", place="kernel", is_divided=False, **_TIMES
    ),),
    rows=(ProfiledRow(
        step=0, place="kernel", name="f32_gemm", label="", operators=(7,), flops=9, bytes=9, **_TIMES
    ),),
    missing={"peaks": "not asked"},
)  # fmt: skip
ADVICE = Advice(
    verdict="change", text="1 operator to change", to_change=1, cpu_macs_share=0.25, cpu_time_share=0.5,
    pieces=(AdvicePiece(
        rule="reshape operations are expensive", operators=(7,), finding="copied <i>alone</i>: 1 x RESHAPE",
        gain="without them 1 launch less", source="a document", bytes=4096, ms=0.125,
    ),),
)  # fmt: skip
PIPELINE = Pipeline(
    preprocess="resize 1280x720", per_second=110.0, serial_per_second=80.0, gain=1.375, preprocess_ms=3.5,
    run_ms=9.0,
)  # fmt: skip
THROUGHPUT = Throughput(in_flight=4, seconds=10.01, runs=2290, per_second=2290 / 10.01)


def measurement(
    raw: Sequence[ProcessSamples], delegate: str, operators: int, verdict: str | None = "pass"
) -> Measurement:
    return Measurement(
        latency_ms=latency(raw),
        samples=sum(len(p.invoke_ns) for p in raw),
        memory_peak_bytes=max(p.memory_peak_bytes for p in raw),
        accuracy=accuracy(verdict, delegate),
        delegation=full(operators) if delegate == "gpu" else None,
        settings={
            "threads": "2",
            "precision": "fp32",
            "warmup": "5 runs and 0.5 s",
            "timed": "30 runs and 2 s",
            "sample_floors": json.dumps(FLOORS),
        },
        samples_sha256=sha(f"{delegate}{operators}"),
        init=init(delegate),
        memory=memory(delegate),
        device=DEVICE
        if delegate == "gpu"
        else DeviceTime(missing={"busy": "no queue", "queue_delay": "no queue"}),
        transfer=TRANSFER if delegate == "gpu" else Transfer(missing={"in_ms": "no border"}),
        cache_bytes=19_000_000 if delegate == "gpu" else 0,
        sustained=SUSTAINED if delegate == "gpu" else None,
        throughput=THROUGHPUT if delegate == "gpu" else None,
        pipeline=PIPELINE if delegate == "gpu" else None,
        profile=PROFILE if delegate == "gpu" else None,
        advice=ADVICE if delegate == "gpu" else None,
        installed=Installed(bytes=61_000_000 if delegate == "litert" else 5_100_000),
        variation=VARIATION,
        quality=QUALITY,
        tunings=TUNINGS if delegate == "gpu" else (),
        warnings=tuple(dict.fromkeys(flag for p in raw for flag in p.flags)),
    )


QUALITY = Quality(
    allowance=0.004, blocks=4, rounds=28, repeated=2, alternating=True, stopped="decided",
    facts=("process 2: autocorrelated: lag-1 autocorrelation 0.67",), seen=("foreign CPU time", "swap"),
    unseen=("clock: the machine tells none",),
)  # fmt: skip


def ratio(median: float, half: float = 0.02) -> Ratio:
    """Build a paired ratio over `litert`, known to a factor of about 1 + `half`."""
    return Ratio(
        against=f"litert@{HOST}",
        baseline_id=baseline_id("litert", {"threads": 2}),
        device_id=HOST,
        median=median,
        ci95=(median * math.exp(-half), median * math.exp(half)),
        blocks=4,
        seed=1,
        allowance=0.004,
        spread=half,
    )


def cell(
    campaign: str, model: str, delegate: str, device: str, status: str = "done", **changes: object
) -> CellRecord:
    size = MODELS.get(model, (40_000,))[0]
    environment = {
        "cpu": CPU_NAME, "kernel": "6.1.0-28-amd64", "measuring": "1", "numpy": "2.2.6", "runtime": "0.1.0",
    }  # fmt: skip
    if device == POCL:
        environment |= {
            "opencl_driver": "3.1",
            "opencl_platform": "Portable Computing Language",
            "llvm": "14.0.6",
        }
    if delegate == "litert":
        environment |= {"ai-edge-litert": "2.3.0"}
    measured = changes.get("measurement") is not None
    record = CellRecord(
        cell_id=sha(f"{campaign}{model}{delegate}{device}")[:12],
        campaign=campaign,
        campaign_id=sha(campaign)[:10],
        model=model,
        model_sha256=sha(model),
        model_bytes=size,
        delegate=delegate,
        delegate_kind=delegate.partition("-")[0],
        delegate_options={"threads": 2} if delegate != "gpu" else {"precision": "fp32"},
        device=device,
        device_name={HOST: CPU_NAME, POCL: POCL_NAME}.get(device, ""),
        level="quick",
        status=status,
        reason=None,
        measurement=None,
        environment_id=environment_id(environment) if measured else None,
        environment=environment if measured else {},
        facts={"governor": "performance", "load_at_start": "0.31", "host": "bench-01"} if measured else {},
        finished_at=NIGHT + timedelta(minutes=7) if status != "queued" else None,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def attempt(record: CellRecord, number: int, reason: Reason | None = None, log: str = "") -> AttemptRecord:
    return AttemptRecord(
        attempt_id=sha(f"{record.cell_id}{number}")[:12],
        number=number,
        device_id=record.device,
        state="failed" if reason else record.status,
        reason=reason,
        started_at=NIGHT,
        ended_at=NIGHT + timedelta(seconds=14),
        duration_ns=14_200_000_000,
        log_tail=log,
    )


@cache
def demo_farm() -> HandMadeFarm:
    """Build the demo's campaign as the newest, `regressions` before it."""
    cells: list[CellRecord] = []
    raw: dict[str, tuple[ProcessSamples, ...]] = {}
    for model, (_, operators, medians) in MODELS.items():
        for delegate, device in (("cpu", HOST), ("gpu", POCL), ("litert", HOST)):
            if delegate not in medians:
                text = "operator 0 QUANTIZE: int8 activations are not supported in fp32"
                record = cell(
                    "demo", model, delegate, device, "unsupported", reason=reason("not_delegated", text)
                )
                cells.append(replace(record, attempts=(attempt(record, 1),)))
                continue
            samples = processes(f"{model}{delegate}", medians[delegate])
            measured = measurement(samples, delegate, operators)
            if delegate != "litert":
                measured = measured.model_copy(update={"ratio": ratio(medians["litert"] / medians[delegate])})
            record = cell("demo", model, delegate, device, measurement=measured)
            raw[record.cell_id] = samples
            cells.append(
                replace(record, attempts=(attempt(record, 1, log="[runner] 3 processes, all clean\n"),))
            )
    newest = campaign("demo", NIGHT, tuple(MODELS), ("cpu", "gpu", "litert"), "litert")
    older, older_cells, older_raw = _varied()
    return HandMadeFarm(
        (older, newest), {newest.campaign_id: tuple(cells), older.campaign_id: older_cells}, raw | older_raw
    )


def campaign(
    name: str, at: datetime, models: Sequence[str], delegates: Sequence[str], baseline: str | None
) -> CampaignRecord:
    return CampaignRecord(
        campaign_id=sha(name)[:10],
        name=name,
        submitted_at=at,
        level="quick",
        baseline=baseline,
        manifest_sha256=sha(f"manifest of {name}"),
        models=tuple(models),
        delegates=tuple(delegates),
        labels={"team": "vision"} if name == "demo" else {},
    )


def reason(code: str, text: str) -> Reason:
    return Reason(code=ReasonCode(code), text=text)


def _varied() -> tuple[CampaignRecord, tuple[CellRecord, ...], dict[str, tuple[ProcessSamples, ...]]]:
    """Everything that is not a clean success."""
    name = "regressions"
    cells: list[CellRecord] = []
    raw: dict[str, tuple[ProcessSamples, ...]] = {}

    def add(
        model: str, delegate: str, device: str, samples: tuple[ProcessSamples, ...] = (), **changes: object
    ) -> None:
        if samples and "measurement" not in changes:
            changes["measurement"] = measurement(samples, delegate, 42)
        record = cell(name, model, delegate, device, **changes)  # type: ignore[arg-type]
        raw[record.cell_id] = samples
        cells.append(record)

    wrong = processes("wrong", 0.9)
    two = processes("two", 3.3, count=2, samples=40)
    few = processes("few", 800.0, samples=5)
    base = processes("base", 3.1)
    partly = processes("partly", 2.2)
    ops = ("CUSTOM:MaxPoolingWithArgmax2D", "TRANSPOSE_CONV", "GATHER_ND") * 6
    left = tuple(
        (i, op, f"{op} version {i % 4 + 1} is not lowered; it runs on the CPU") for i, op in enumerate(ops)
    )
    add("struck", "gpu", POCL, wrong, status="failed", measurement=measurement(wrong, "gpu", 42, "fail"),
        reason=reason("wrong_output", "output 0: relative error 0.42 exceeds 0.0001"))  # fmt: skip
    add("struck", "cpu", HOST, status="failed", reason=reason("crash", "SIGSEGV in all 3 attempts"))
    add("struck", "litert", HOST, base)
    delegated = measurement(partly, "gpu", 42).model_copy(update={"delegation": partial(42, *left)})
    add("partial", "gpu", POCL, partly, measurement=delegated)
    add("partial", "cpu", HOST, two, measurement=measurement(two, "cpu", 42, None))
    add("partial", "litert", HOST, base, reused_from=sha("demoface_landmarklitert" + HOST)[:12])
    add("slow", "gpu", "-", status="unsupported",
        reason=reason("no_device", "no OpenCL device: install pocl-opencl-icd, or a GPU driver"))  # fmt: skip
    add("slow", "cpu", HOST, few)
    add("slow", "litert", HOST, status="queued")
    for hostile in HOSTILE_NAMES:
        add(hostile, "litert", HOST, processes(hostile, 5.0, samples=70))
        add(hostile, "cpu", HOST, status="failed", reason=reason("timeout", f"{hostile[:60]} ran past 900 s"))
    crashed = cells[1]
    log = "</pre><script>alert(2)</script>\x1b[31mred\x1b[0m\n"
    tries = tuple(attempt(crashed, n, reason("crash", "SIGSEGV"), log) for n in (1, 2, 3))
    cells[1] = replace(crashed, attempts=tries)
    models = tuple(dict.fromkeys(c.model for c in cells))
    made = campaign(name, NIGHT - timedelta(days=1), models, ("gpu", "cpu", "litert"), "litert")
    return made, tuple(cells), raw
