"""The application: its routes, and the rules for every request and every answer. Only `/health`, `/authority`
and `/enrol` need no token.
"""

import json
import logging
import traceback
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.wire.messages import PROTOCOL_VERSION
from orchestrator.config.address import Address
from orchestrator.config.limits import StoreLimits
from orchestrator.db.engine.sessions import Database, RefusedError
from orchestrator.db.results import records
from orchestrator.endpoint.access import AgentRegistry, Gate
from orchestrator.endpoint.artifacts import Artifacts
from orchestrator.endpoint.body import whole
from orchestrator.endpoint.model_uploads import ModelUploads
from orchestrator.endpoint.protocol import connection_of
from orchestrator.endpoint.user_calls import Face, UserCalls
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.monitoring.metrics_page import MEDIA_TYPE, MetricsPage
from orchestrator.results.export import campaign_json, results_document
from orchestrator.results.records import CampaignRecord
from orchestrator.sources.store import Store

LONGEST_PATH: Final = 2000
"""Characters of a path, at most. Chosen: ours have some 80 and the name of a campaign; it bounds what is
compared with every name.
"""

_LONGEST_REASON: Final = 300
"""Characters of an error that are logged."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Wraps the application."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and not connection_of(scope).is_vouched_for:
                # Who shows no token gets one answer a connection: neither idling nor pipelining pays.
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        why = fault_of(scope["path"])
        if why:
            await JSONResponse({"error": why}, 400)(scope, receive, answer)
            return
        try:
            await self.app(scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not reach the server's log
            log.error("%s %r failed: %s", scope["method"], scope["path"], brief(error))


def fault_of(path: str) -> str | None:
    """Why no route can have this path; None: one may."""
    if len(path) > LONGEST_PATH:
        return f"the path has {len(path)} characters; the limit is {LONGEST_PATH}"
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        return "the path has control characters"
    return None


def brief(error: Exception) -> str:
    """Format an error in one line with its place in the code; a database's refusal without its values."""
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost frame of the farm's own code: it says more than one of a library.
    frame = next((one for one in reversed(frames) if "orchestrator" in Path(one.filename).parts), frames[-1])
    lines = [] if isinstance(error, RefusedError) else str(error).splitlines()[:1]
    return ": ".join([type(error).__name__, *lines])[:_LONGEST_REASON] + f" ({frame.filename}:{frame.lineno})"


@dataclass(frozen=True, slots=True)
class ResultRoutes:
    """The handlers of `/campaigns`."""

    database: Database
    gate: Gate

    async def campaigns(self, request: Request) -> Response:
        """`GET /campaigns`: every campaign, the one submitted last first."""
        await self.gate.reader(request)
        return JSONResponse(await run_in_threadpool(self._campaigns))

    async def campaign(self, request: Request) -> Response:
        """`GET /campaigns/{ref}`: one campaign, by its id, the beginning of its id, or its name."""
        await self.gate.reader(request)
        return JSONResponse(campaign_json(await self._found(request)))

    async def results(self, request: Request) -> Response:
        """`GET /campaigns/{ref}/results`: the output of `farm results --format json`."""
        await self.gate.reader(request)
        record = await self._found(request)
        text = await run_in_threadpool(self._results, record.campaign_id)
        return Response(text, media_type="application/json")

    def are_samples(self, sha256: str) -> bool:
        """Whether a result refers to these samples."""
        with self.database.read() as session:
            return records.has_samples(session, sha256)

    async def _found(self, request: Request) -> CampaignRecord:
        try:
            return await run_in_threadpool(self._campaign, request.path_params["ref"])
        except UsageError as error:
            raise HTTPException(404, str(error)) from error

    def _campaigns(self) -> list[dict[str, object]]:
        with self.database.read() as session:
            return [campaign_json(record) for record in records.campaigns(session)]

    def _campaign(self, ref: str) -> CampaignRecord:
        with self.database.read() as session:
            return records.campaign_record(session, records.find_campaign(session, ref))

    def _results(self, campaign_id: str) -> str:
        with self.database.read() as session:
            number = records.find_campaign(session, campaign_id).no
            return results_document(records.cells_of(session, number))


LARGEST_REQUEST_BYTES: Final = 16 * 1024
"""Bytes of an enrolment's body, at most; uploads have limits of their own. Chosen: a request has less than
1 KiB.
"""

log = logging.getLogger(__name__)


def application(
    database: Database,
    store: Store,
    limits: StoreLimits,
    trust: AgentRegistry,
    address: Address,
    face: Face | None = None,
    metrics: MetricsPage | None = None,
) -> ASGIApp:
    """Build the HTTP application. `address`: where it is served; `face`: what users may call; `metrics`: what
    Prometheus is told, None: nothing.
    """
    gate = Gate(trust, address.read_token, address.submit_token)
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
        # Before the route of GET, which in Starlette takes HEAD as well: this one is for agents, that one for
        # readers.
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
