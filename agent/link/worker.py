"""The Celery worker of a link: one queue, one task, one message at a time, acknowledged on receipt."""

from collections.abc import Callable

from celery import Celery
from celery.exceptions import WorkerShutdown, WorkerTerminate
from celery.worker import WorkController
from kombu import compression

from agent.wire.queue import MESSAGE_TASK


def register(app: Celery, on_message: Callable[[str], None]) -> None:
    """Make `on_message` the only task of an application; Celery's own (map, chain, clean-up) are removed.

    From now on this process reads no compressed message.
    """
    for kind in compression.encoders():
        compression.register(_refuse, _refuse, kind)
    app.task(name=MESSAGE_TASK, ignore_result=True)(on_message)
    app.finalize()
    for name in [name for name in app.tasks if name != MESSAGE_TASK]:
        app.tasks.unregister(name)


def _refuse(_body: bytes) -> bytes:
    """Refuse what would be decompressed before its signature is checked: a kilobyte can become a megabyte."""
    raise ValueError("a message whose body is compressed")


def work(app: Celery, name: str, on_message: Callable[[str], None]) -> str:
    """Call `on_message` for every message of the application's queue. Returns why the worker ended."""
    register(app, on_message)
    # No heartbeat, mingle or gossip: an agent's user has no right to the keys and channels that they need.
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
