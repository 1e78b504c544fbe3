"""The farm's face on a user's machine: every part asks the farm over HTTP, and decides nothing itself."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

from pydantic import ValidationError

from orchestrator.config.home import FarmHome, make_folders
from orchestrator.config.lab import LabConfig
from orchestrator.endpoint.client import Sender, fetch_samples
from orchestrator.endpoint.user_client import UserClient, trusting
from orchestrator.errors import FarmError, UsageError
from orchestrator.farm.local.database_wait import DatabaseWait
from orchestrator.farm.opening import Farm
from orchestrator.farm.reading.raw import RawFiles
from orchestrator.farm.remote.calls import CALLS
from orchestrator.farm.submit.campaign_events import CampaignEvents
from orchestrator.farm.submit.requests import Request, SentFile, SentInput, SentModel
from orchestrator.farm.submit.submission import Order, Submitted
from orchestrator.manifest.campaign import Campaign
from orchestrator.results.events import FarmEvent
from orchestrator.results.records import CellRecord
from orchestrator.sources.resolve import StoredModel
from orchestrator.sources.store import Store

_LOOK_EVERY_S: Final = 1.0
"""Seconds between two looks at a campaign: a display that goes on within a second, one small request a second
for each user who watches.
"""

ON_THE_SERVER: Final = "this is done on the server: a machine with FARM_URL and FARM_TOKEN cannot do it"


class RemoteFarm:
    """The farm from a user's machine: `Farm`'s face for everyday verbs; others name the server."""

    def __init__(self, home: FarmHome, lab: LabConfig, client: UserClient) -> None:
        """Use `RemoteFarm.open`."""
        self.home = home
        self.lab = lab
        self._client = client
        self._store = Store(home.store, lab.limits.artifact_bytes, lab.limits)
        self.reading = RemoteReading(client, home, lab)
        self.devices = RemotePart(client, "devices")
        self.steering = RemotePart(client, "steering")
        self.refinements = RemotePart(client, "refinements")
        self.submission = RemoteSubmission(client, self._store)
        self.running = RemoteRunning(self.reading)

    @classmethod
    def open(cls, home: FarmHome, lab: LabConfig) -> "RemoteFarm":
        """Make the folders of this machine; calls follow later. Raises `UnreachableError`, `UsageError`."""
        if lab.address is None or lab.user_token is None:
            raise UsageError("FARM_URL and FARM_TOKEN say where the farm is")
        make_folders(home)
        address = trusting(lab.address, lab.user_token, home.root)
        return cls(home, replace(lab, address=address), UserClient(address, lab.user_token))

    @property
    def database(self) -> NoReturn:
        """Raise `UsageError`: a user's machine has no database."""
        raise UsageError(ON_THE_SERVER)

    @property
    def importing(self) -> NoReturn:
        """Raise `UsageError`: results of other tools are imported on the server."""
        raise UsageError(ON_THE_SERVER)

    @property
    def schedules_elsewhere(self) -> bool:
        """True: a campaign goes on when this process ends."""
        return True

    def begin(self) -> None:
        """Do nothing: the farm knows its devices."""

    def send(self, files: Iterable[str], note: Callable[[str], None]) -> None:
        """Send files of this machine's store (sha256) to the farm. Raises as `Sender.send`."""
        assert self.lab.address is not None
        sender = Sender(self.lab.address, self._client.token, what="FARM_TOKEN")
        for sha256 in dict.fromkeys(files):
            sender.send(sha256, self._store, note)

    def wait(self, say: Callable[[str], None]) -> DatabaseWait:
        """Return a wait that outlasts the absence of the farm; `say` gets each line for the user."""
        return DatabaseWait(say, "the farm")

    def doctor(self) -> NoReturn:
        """Raise `UsageError`: it looks at the server."""
        raise UsageError(ON_THE_SERVER)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __enter__(self) -> "RemoteFarm":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


AnyFarm: TypeAlias = Farm | RemoteFarm
"""The farm of this machine, or one that is reached over HTTP."""


def opened(home: FarmHome, lab: LabConfig) -> AnyFarm:
    """Open the farm that the configuration names: by its database, or over HTTP. Raises as both `open` do."""
    return Farm.open(home, lab=lab) if lab.user_token is None else RemoteFarm.open(home, lab)


class RemotePart:
    """A part of the farm whose methods are calls."""

    def __init__(self, client: UserClient, part: str) -> None:
        self._client = client
        self._part = part

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # `copy`, `pickle` and their like look up such names; they must not become calls.
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(asked, self._client, f"{self._part}.{name}")


def asked(client: UserClient, call: str, *args: Any, **kwargs: Any) -> Any:
    """Make a call. Raises what the farm's own method raises, and `UsageError` for what is no call."""
    if call not in CALLS:
        raise UsageError(ON_THE_SERVER)
    answer = client.call(call, CALLS[call].written(*args, **kwargs))
    try:
        return CALLS[call].answer.validate_json(answer)
    except ValidationError as error:
        first = error.errors()[0]
        raise FarmError(
            f"the farm's answer to {call} is not understood ({'.'.join(map(str, first['loc']))}: "
            f"{first['msg']}): install the farm's version of delegate-farm on this machine"
        ) from error


class RemoteReading(RawFiles, RemotePart):
    """The reading part over HTTP: `Reading`'s face."""

    def __init__(self, client: UserClient, home: FarmHome, lab: LabConfig) -> None:
        super().__init__(client, "reading")
        self.home = home
        self._lab = lab

    def cells(self, campaign: str | None = None) -> list[CellRecord]:
        """Return a campaign's cells (None: the last; `all`: all), by pages: one may end meanwhile."""
        # By its id from here on: by the next page, another campaign may be the last one.
        if campaign != "all":
            campaign = self.campaign(campaign).campaign_id
        found: list[CellRecord] = []
        while True:
            page = self.page(campaign, len(found))
            found += page.cells
            if not page.more:
                return found

    def compared(self, campaign: str | None, model: str | None = None) -> list[CellRecord]:
        """Return the same cells, or those of one model: over HTTP, records come whole."""
        return [cell for cell in self.cells(campaign) if model in (None, cell.model)]

    def measurements(self, campaign: str | None) -> dict[str, str]:
        """Return the measurements that a campaign's cells show, by cell id, as JSON text."""
        measured = ((cell.cell_id, cell.measurement) for cell in self.cells(campaign))
        return {cell_id: found.model_dump_json() for cell_id, found in measured if found is not None}

    def _fetch(self, sha256: str) -> None:
        url = "" if self._lab.address is None else self._lab.address.url
        fetch_samples(self.home, self._lab, url, sha256)

    def events(self, ref: str | None) -> tuple[str, CampaignEvents]:
        """Return a campaign's id, and its events from now on. Raises `UsageError`."""
        campaign_id, since = self.begin(ref)
        return campaign_id, self.events_since(campaign_id, since)

    def events_since(self, campaign_id: str, since: int) -> CampaignEvents:
        """Return the events of a campaign after event number `since`."""
        return CampaignEvents(partial(self.news, campaign_id), since)


@dataclass(frozen=True, slots=True)
class RemoteSubmission:
    """The submission part over HTTP: `Submission`'s face."""

    client: UserClient
    store: Store

    def order(self, campaign: Campaign, models: Sequence[StoredModel], *, force: bool = False) -> Order:
        """Let the farm plan it, before any file is sent; it is placed once the farm has its files. Raises
        `UsageError`, `UnreachableError`.
        """
        if campaign.written is None:
            raise UsageError(f"campaign {campaign.name!r} has no document that the farm could read")
        data = {m.id: m.plan.labelled for m in campaign.models if m.plan.labelled is not None}
        entries = {m.id: m for m in campaign.models}
        sent = []
        for model in models:
            file = SentFile(model.sha256, model.size_bytes) if model.sha256 else None
            labelled = data.get(model.id)
            with_it = None if labelled is None else SentFile(labelled.sha256, labelled.size_bytes)
            specs = entries[model.id].inputs.items()
            inputs = {
                name: SentInput(spec.data.sha256, spec.data.size_bytes, spec.shape or ())
                for name, spec in specs
                if spec.data is not None
            }
            sets = entries[model.id].plan.input_sets
            sent.append(SentModel(model.id, file, with_it, model.unreachable, inputs, sets))
        written = campaign.written
        request = Request(
            written.document, written.file, tuple(sent), written.delegates, written.only, campaign.priority,
            force, devices=written.devices, level=written.level, labels=dict(campaign.labels),
        )  # fmt: skip
        preview = asked(self.client, "requests.preview", request)
        return Order(preview, partial(asked, self.client, "requests.place", request))


@dataclass(frozen=True, slots=True)
class RemoteRunning:
    """The running part over HTTP: `Running`'s face; the farm schedules."""

    reading: RemoteReading

    def run(self, submitted: Submitted, on_event: Callable[[FarmEvent], None], wait: DatabaseWait) -> None:
        """Watch a campaign until it ends. Ctrl-C ends the watching, not the campaign."""
        news = self.reading.events_since(submitted.campaign_id, submitted.events_before)
        while wait(lambda: news.emit(on_event)):
            time.sleep(_LOOK_EVERY_S)
