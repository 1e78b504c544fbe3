"""The noise of a device: what an A/A series says of it, where it is kept, and what it changes."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from agent.wire.measurement import Quality, Ratio, baseline_id
from orchestrator.db.campaigns import steering_requests
from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import records
from orchestrator.policy.matrix import expand
from orchestrator.results.device_noise import DeviceNoise, noise_from
from orchestrator.results.noise import AGAIN, FIRST, noise_of, noise_series
from orchestrator.results.records import CellRecord
from orchestrator.sources import health_model
from runtime.api.interpreter import Interpreter
from tests.orchestrator.asked import CPU, POCL, model_files
from tests.orchestrator.cli.records import cell
from tests.orchestrator.stocked import cells, dispatch, report_devices, stock

NOW = "2026-03-01T12:00:00+00:00"


def session(number: int, ratio: float, p50: float = 2.0, void: tuple[str, ...] = ()) -> list[CellRecord]:
    """One session of `cpu` against itself."""
    pair = [replace(cell(f"s{number}", name, p50=p50), delegate_kind="cpu") for name in (FIRST, AGAIN)]
    stored = Ratio(
        against="x", baseline_id=baseline_id("cpu", {}), device_id="host-cpu", median=ratio,
        ci95=None, blocks=5, seed=1,
    )  # fmt: skip
    quality = Quality(void=void, facts=("drift",))
    found = []
    for one, own in zip(pair, (None, stored), strict=True):
        assert one.measurement is not None
        found.append(
            replace(one, measurement=one.measurement.model_copy(update={"ratio": own, "quality": quality}))
        )
    return found


def test_the_floor_is_what_equal_things_differ_by_and_sessions_vary_on_their_own() -> None:
    logs, medians = (0.01, -0.02, 0.02, -0.01), (2.0, 2.1, 1.9, 2.05)
    series = [
        c for i, (x, p50) in enumerate(zip(logs, medians, strict=True)) for c in session(i, math.exp(x), p50)
    ]
    found = noise_of(series, FIRST, NOW)
    assert isinstance(found, DeviceNoise)
    assert found.floor == pytest.approx(math.expm1(math.sqrt(sum(x * x for x in logs) / 4)))
    assert found.session_sd == pytest.approx(math.expm1(np.std(np.log(medians), ddof=1)))
    assert (found.sessions, found.delegate, found.measured_at) == (4, "cpu", NOW)
    assert found.text == "1.6 % (sessions 4.4 %)"


def test_void_sessions_do_not_count() -> None:
    series = [*session(0, 1.0), *session(1, 1.0), *session(2, 1.0)]
    found = noise_of([*series, *session(3, 9.0, void=("swap",))], FIRST, NOW)
    assert isinstance(found, DeviceNoise)
    assert (found.sessions, found.floor) == (3, 0.0)
    assert noise_of(series[:4], FIRST, NOW) == "2 of 2 sessions gave a ratio; it takes 3"


def test_what_an_earlier_release_stored_of_the_noise_is_read() -> None:
    noise = DeviceNoise(0.04, 0.05, 5, "cpu", NOW)
    assert noise_from({**asdict(noise), "suspect": 2}) == noise


def test_a_series_is_a_campaign_of_one_delegate_against_itself_on_one_device(tmp_path) -> None:
    campaign = noise_series("pocl-0", "gpu", tmp_path / "m.tflite", 3)
    specs = expand(campaign, model_files(*(m.id for m in campaign.models)), [CPU, POCL], [])
    assert [(s.model, s.delegate, s.delegate_kind) for s in specs] == [
        (f"session-{n}", name, "gpu") for n in (1, 2, 3) for name in (FIRST, AGAIN)
    ]
    assert {device for s in specs for device in s.devices} == {"pocl-0"}
    assert (campaign.baseline_delegate, campaign.level, campaign.reuse) == (FIRST, "standard", "never")


def test_the_noise_of_a_device_is_kept_over_its_next_hello_and_reaches_its_results(
    database: Database,
) -> None:
    stock(database)
    (waiting,) = cells(database)
    dispatch(database, waiting.cell_id)
    noise = DeviceNoise(0.04, 0.05, 5, "cpu", NOW)
    with database.write() as turn:
        steering_requests.record_noise(turn, "host-cpu", noise)
    report_devices(database)
    with database.read() as read:
        (found,) = records.cells_by_id(read, [waiting.cell_id])
    assert found.noise == noise


def test_the_calibration_workload_is_a_chain_of_matrix_products(tmp_path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(health_model.model())
    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    x = np.random.default_rng(1).uniform(-1, 1, (64, 256)).astype(np.float32)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert y.shape == (64, 256)
    assert 0.5 < y.std() / x.std() < 2.0, "neither vanishes nor grows from product to product"
