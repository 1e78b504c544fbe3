"""Steps of a queue over real rows: cells are chosen, begun and ended, on a host with three GPUs."""

from __future__ import annotations

from datetime import UTC, datetime

from agent.wire.messages import Device
from orchestrator.db.cells import attempts
from orchestrator.db.queue import picking
from orchestrator.db.scheduling import ingest
from tests.orchestrator.asked import CPU

GPUS = tuple(
    Device(
        device_id=f"gpu-{i}",
        kind="gpu",
        api="opencl",
        name=f"H200 {i}",
        vendor="NVIDIA",
        delegates=("gpu",),
        exclusion_group=f"host/gpu-{i}",
        environment={"driver": "550.90"},
        labels={"room": "a" if i < 2 else "b"},
    )
    for i in range(3)
)
FLEET = (CPU, *GPUS)


def now():
    return datetime.now(UTC)


def choose(database, *device_ids, at=None):
    with database.read() as session:
        return picking.choose(session, device_ids, at or now())


def begin(database, assignment, *, start=True):
    with database.write() as session:
        job = attempts.begin(session, assignment, now())
        if start:
            assert attempts.start(session, job.attempt_id, job.epoch, now())
    return job


def take_in(database, message):
    with database.write() as session:
        return ingest.apply(session, message, now())


def change(database, table, key, **values):
    with database.write() as session:
        session.get_one(table, key).sqlmodel_update(values)


def read(database, table, key):
    with database.read() as session:
        row = session.get_one(table, key)
        session.expunge(row)
        return row
