"""The application: routes and form of errors. Only `/health`, `/authority` and `/enrol` need no token."""

import json
import logging
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.config.address import Address
from orchestrator.config.limits import StoreLimits
from orchestrator.db.engine.sessions import Database
from orchestrator.endpoint.access import Gate, Trust
from orchestrator.endpoint.answers import Answers
from orchestrator.endpoint.artifacts import Artifacts
from orchestrator.endpoint.body import whole
from orchestrator.endpoint.model_uploads import ModelUploads
from orchestrator.endpoint.results_routes import ResultRoutes
from orchestrator.endpoint.user_calls import Face, UserCalls
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.monitoring.metrics_page import MEDIA_TYPE, MetricsPage
from orchestrator.sources.store import Store

LARGEST_REQUEST_BYTES: Final = 16 * 1024
"""Bytes of an enrolment's body, at most; uploads have limits of their own. Chosen: a request has less than
1 KiB.
"""

log = logging.getLogger(__name__)


def application(
    database: Database,
    store: Store,
    limits: StoreLimits,
    trust: Trust,
    read_token: str | None,
    submit_token: str | None = None,
    face: Face | None = None,
    address: Address | None = None,
    metrics: MetricsPage | None = None,
) -> ASGIApp:
    """Build the HTTP application. `face`: what users may call; `address`: where it is served; `metrics`: what
    Prometheus is told, None: nothing.
    """
    gate = Gate(trust, read_token, submit_token)
    results = ResultRoutes(database, gate)
    artifacts = Artifacts(store, limits, gate, results.are_samples)
    models = ModelUploads(store, limits, gate)
    users = UserCalls(gate, face, address)

    async def enrol(request: Request) -> Response:
        asked = _asked(await whole(request, LARGEST_REQUEST_BYTES))
        try:
            granted = await run_in_threadpool(trust.enrol, asked)
        except UsageError as error:
            raise HTTPException(403, str(error)) from error
        # The answer contains credentials: no proxy may cache it.
        return JSONResponse(dict(granted), headers={"cache-control": "no-store"})

    async def scraped(request: Request) -> Response:
        await gate.reader(request)
        if metrics is None:
            raise HTTPException(404, "this process counts nothing")
        return Response(await run_in_threadpool(metrics.text), media_type=MEDIA_TYPE)

    routes = [
        Route("/health", _health, methods=["GET"]),
        Route("/enrol", enrol, methods=["POST"]),
        Route("/artifacts/{sha256}", artifacts.send, methods=["GET"]),
        Route("/samples/{sha256}", artifacts.has, methods=["HEAD"]),
        Route("/samples/{sha256}", artifacts.receive, methods=["PUT"]),
        Route("/samples/{sha256}", artifacts.show, methods=["GET"]),
        Route("/models/{sha256}", models.has, methods=["HEAD"]),
        Route("/models/{sha256}", models.receive, methods=["PUT"]),
        Route("/authority", users.authority, methods=["GET"]),
        Route("/farm/{version}/{call}", users.call, methods=["POST"]),
        Route("/metrics", scraped, methods=["GET"]),
        Route("/campaigns", results.campaigns, methods=["GET"]),
        Route("/campaigns/{ref}", results.campaign, methods=["GET"]),
        Route("/campaigns/{ref}/results", results.results, methods=["GET"]),
    ]
    handlers = {HTTPException: _refused, UnreachableError: _unreachable, Exception: _failed}
    routed = Starlette(routes=routes, exception_handlers=handlers)  # type: ignore[arg-type]  # each takes its own
    # A redirect would lead to whatever host the request names.
    routed.router.redirect_slashes = False
    return Answers(routed)


async def _health(_: Request) -> Response:
    return JSONResponse({"farm": "well", "protocol": PROTOCOL_VERSION})


def _asked(body: bytes) -> dict[str, object]:
    """Parse a flat JSON object. Raises `HTTPException` 400."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not JSON") from error
    if not isinstance(found, dict) or any(isinstance(value, dict | list) for value in found.values()):
        raise HTTPException(400, "the body is not a flat JSON object")
    return found


async def _refused(request: Request, error: HTTPException) -> Response:
    """Answer with the reason; the rest of a refused body is not read, so the connection closes."""
    closing = {"connection": "close"} if request.method in ("PUT", "POST") else {}
    headers = dict(error.headers or {}) | closing
    return JSONResponse({"error": error.detail}, error.status_code, headers=headers)


async def _unreachable(_: Request, error: UnreachableError) -> Response:
    log.error("a request is not answered: %s", error)
    return JSONResponse({"error": "the farm's database does not answer; try again"}, 503)


async def _failed(_: Request, __: Exception) -> Response:
    """Answer; Starlette hands the error on, and `Answers` logs it."""
    return JSONResponse({"error": "the farm failed; see its log"}, 500)
