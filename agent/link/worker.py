"""The Celery worker of a link: one queue, one task, one at a time, acknowledged as soon as it is here."""

from __future__ import annotations

from collections.abc import Callable

from celery import Celery
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import WorkController

from agent.wire.queue import MESSAGE_TASK


def register(app: Celery, take: Callable[[str], None]) -> None:
    """Make `take` the one task of an application; Celery's own (map, chain, cleaning up) are forgotten."""
    app.task(name=MESSAGE_TASK, ignore_result=True)(take)
    app.finalize()
    for name in [name for name in app.tasks if name != MESSAGE_TASK]:
        app.tasks.unregister(name)


def work(app: Celery, name: str, take: Callable[[str], None]) -> str:
    """Hand every message of the application's queue to `take` until the broker is lost; says why it ended."""
    register(app, take)
    worker = WorkController(
        app=app,
        hostname=f"link@{name}",
        pool_cls="solo",
        concurrency=1,
        loglevel="WARNING",
        without_heartbeat=True,
        without_mingle=True,
        without_gossip=True,
    )
    try:
        worker.start()
    except (WorkerShutdown, WorkerTerminate) as end:
        return f"the broker is lost: {end.__cause__ or end}"
    return "the worker ended"
