"""Serves campaigns and results as JSON to readers with the read token."""

from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from orchestrator.db.engine.sessions import Database
from orchestrator.db.results import records
from orchestrator.endpoint.access import Gate
from orchestrator.errors import UsageError
from orchestrator.results.export import campaign_json, results_document
from orchestrator.results.records import CampaignRecord


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
