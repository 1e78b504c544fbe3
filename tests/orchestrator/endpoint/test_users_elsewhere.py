"""A user's work from a machine with FARM_URL and FARM_TOKEN alone: the real command line and endpoint."""

from __future__ import annotations

import gc
import hashlib
import io
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx
import numpy as np
import pytest

from orchestrator.config.lab import DEFAULT_USER_CELLS
from orchestrator.db.scheduling import ingest
from orchestrator.endpoint.user_calls import LARGEST_CALL_BYTES, VERSION
from orchestrator.errors import UsageError
from orchestrator.farm.submit.requests import Request
from orchestrator.manifest.document import MAX_FILE_BYTES
from orchestrator.manifest.load import parse_manifest
from orchestrator.manifest.plans import LEVELS
from orchestrator.policy.rights import Scope
from tests.orchestrator.cli.models import unary_model
from tests.orchestrator.endpoint.users_elsewhere import CAMPAIGN, Elsewhere, users_elsewhere
from tests.orchestrator.stocked import result
from tests.services.forks import Program


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Elsewhere]:
    """One farm for all tests: each has campaigns of its own names."""
    with users_elsewhere(tmp_path_factory.mktemp("farm"), tls=True) as made:
        made.add("ana", address=made.endpoint.address)
        made.add("bob", address=made.endpoint.address)
        made.add("root", [Scope.ADMIN], address=made.endpoint.address)
        yield made


def measure(farm: Elsewhere, name: str, told: list[str]) -> None:
    """Do what the lab's scheduler and an agent would do with a campaign of one cell, once it is there."""
    while not any(campaign.name == name for campaign in farm.farm.reading.campaigns()):
        time.sleep(0.01)
    record = farm.farm.reading.campaign(name)
    told.append(record.submitted_by)
    job = farm.begin(record.campaign_id)
    with farm.farm.database.write() as turn:
        ingest.apply(turn, result(job), datetime.now(UTC))


def test_a_campaign_is_submitted_watched_and_read_with_address_and_token_alone(farm: Elsewhere) -> None:
    farm.write("ana", "everyday")
    planned = farm.answer("ana", "submit", "models.yaml", "--dry-run")
    assert [(cell["device"], cell["action"]) for cell in planned] == [("host-cpu", "run")]
    assert farm.cells == 0
    told: list[str] = []
    measuring = threading.Thread(target=measure, args=(farm, "everyday", told))
    measuring.start()
    submitted = farm.call("ana", "submit", "models.yaml")
    measuring.join()
    assert (submitted.code, told) == (0, ["ana"]), submitted.err
    assert "1 cell: 1 to run" in submitted.err
    assert "1/1 right" in submitted.out

    (cell,) = farm.answer("bob", "results", "--campaign", "everyday")
    assert (cell["status"], cell["latency_ms"]["p50"]) == ("done", 1.0)
    assert farm.endpoint.store.find(cell["model_sha256"]) is not None, "the model was sent"
    status = farm.answer("bob", "status", "everyday")
    assert (status["submitted_by"], [one["status"] for one in status["cells"]]) == ("ana", ["done"])
    assert "ana" in farm.call("bob", "status").out
    assert {d["device_id"] for d in farm.answer("bob", "devices")["devices"]} == {"host-cpu", "pocl-0"}
    assert farm.call("bob", "compare", "everyday", "everyday").code == 0
    assert gc.isenabled(), "a verb leaves the process that runs it as it was"
    assert farm.answer("bob", "show", "--why", cell["cell_id"])["state"] == "done"
    assert "finished" in farm.call("bob", "show", "--logs", cell["cell_id"]).out
    shown = farm.call("bob", "show", cell["cell_id"], "--all")
    assert (shown.code, "answers 404 for samples 555555555555" in shown.err) == (1, True), shown.err
    again = farm.answer("bob", "repro", cell["cell_id"])
    campaign = parse_manifest(again["document"].encode(), "again.yaml")
    assert campaign.models[0].plan == LEVELS["quick"]
    assert [one["what"] for one in again["unmatched"]] == ["model"], "it is not on this user's machine"
    for name, code, words in ((cell["cell_id"], 2, "not in the store"), ("zz", 2, "no cell 'zz'")):
        refused = farm.call("bob", "repro", name, "--run")
        assert (refused.code, refused.out, refused.err.count("\n")) == (code, "", 1)
        assert words in refused.err
    reused = farm.answer("bob", "submit", str(farm.folder / "ana/small.tflite"), "--dry-run")
    assert {cell["device"]: cell["action"] for cell in reused if cell["delegate"] == "cpu"} == {
        "host-cpu": "reuse"
    }


@pytest.mark.conformance
def test_ctrl_c_leaves_the_campaign_to_the_farm_and_says_how_to_go_on(farm: Elsewhere) -> None:
    farm.write("ana", "left", size=16)
    command = ["submit", str(farm.folder / "ana/models.yaml")]
    watching = Program("farm", command, farm.folder / "left", farm.environment("ana"))
    watching.until(lambda: "campaign " in watching.tail(), "the campaign is stored")
    watching.process.send_signal(signal.SIGINT)
    assert watching.end() == 128 + signal.SIGINT
    record = farm.farm.reading.campaign("left")
    assert f"the campaign goes on. Watch it: farm status --watch {record.campaign_id}" in watching.tail()
    assert record.counts == {"queued": 1}


def test_a_user_cancels_own_campaigns_and_an_administrator_every_one(farm: Elsewhere) -> None:
    campaign_id = farm.submitted("ana", "owned", size=24)
    cell = farm.farm.reading.cells(campaign_id)[0].cell_id
    for verb in (["cancel", "owned"], ["cancel", cell], ["queue", "pause", "owned"], ["retry", "owned"]):
        refused = farm.call("bob", *verb)
        assert (refused.code, refused.out) == (2, "")
        assert f"campaign {campaign_id} (owned) is not yours, bob: ana submitted it" in refused.err
    assert farm.farm.reading.campaign("owned").counts == {"queued": 1}
    assert farm.answer("ana", "cancel", "owned")["cancelled"] == 1
    other = farm.submitted("bob", "owned", size=24)
    assert other != campaign_id
    assert farm.answer("root", "cancel", other)["cancelled"] == 1
    lacking = farm.call("ana", "devices", "quarantine", "pocl-0")
    assert (lacking.code, "it needs scope admin" in lacking.err) == (2, True)


def test_a_user_whose_cells_wait_may_not_add_more_than_the_farm_allows(farm: Elsewhere) -> None:
    farm.add("greedy", address=farm.endpoint.address)
    farm.submitted("greedy", "first", size=56)
    before = farm.cells
    farm.farm.lab = replace(farm.farm.lab, user_cells=1)
    try:
        farm.write("greedy", "second", size=64)
        ran = farm.call("greedy", "submit", "models.yaml", "--detach")
        administrators = farm.submitted("root", "third", size=64)
    finally:
        farm.farm.lab = replace(farm.farm.lab, user_cells=DEFAULT_USER_CELLS)
    assert ran.code == 2
    assert "user greedy has 1 cells waiting and this campaign adds 1; at most 1 may wait" in ran.err
    assert farm.cells == before + 1
    assert farm.farm.reading.campaign(administrators).submitted_by == "root"


def test_a_retry_counts_like_a_submission_and_a_resume_adds_nothing(farm: Elsewhere) -> None:
    farm.add("eager", address=farm.endpoint.address)
    ended = farm.submitted("eager", "ended", size=72)
    assert farm.answer("eager", "cancel", "ended")["cancelled"] == 1
    paused = farm.submitted("eager", "paused", size=80)
    assert farm.answer("eager", "queue", "pause", "paused")["waiting"] == 1
    farm.farm.lab = replace(farm.farm.lab, user_cells=1)
    try:
        ran = farm.call("eager", "retry", "ended")
        counts = farm.farm.reading.campaign(ended).counts
        resumed = farm.answer("eager", "queue", "resume", "paused")["waiting"]
        administrators = farm.answer("root", "retry", "ended")["retried"]
    finally:
        farm.farm.lab = replace(farm.farm.lab, user_cells=DEFAULT_USER_CELLS)
    assert (ran.code, ran.out) == (2, "")
    assert "user eager has 1 cells waiting and this retry adds 1; at most 1 may wait" in ran.err
    assert (counts, resumed, administrators) == ({"cancelled": 1}, 1, 1)
    for campaign in (ended, paused):
        farm.answer("root", "cancel", campaign)


def test_a_user_may_stand_back_and_only_an_administrator_goes_before_others(farm: Elsewhere) -> None:
    campaign = farm.submitted("ana", "polite", size=88)
    assert farm.call("ana", "queue", "priority", "--json", "polite", "--", "-5").json()["cells"] == 1
    refused = farm.call("ana", "queue", "priority", "polite", "1")
    assert (refused.code, refused.out) == (2, "")
    assert "priority 1: only an administrator goes before other users" in refused.err
    foreign = farm.call("bob", "queue", "priority", "polite", "--", "-1")
    assert (foreign.code, "is not yours, bob" in foreign.err) == (2, True)
    assert farm.answer("root", "queue", "priority", "polite", "7")["cells"] == 1
    farm.answer("root", "cancel", campaign)


def test_a_campaign_is_found_by_the_labels_that_its_submitter_gave_it(farm: Elsewhere) -> None:
    old = farm.submitted("ana", "labelled", "--label", "driver=550", "--label", "sweep", size=96)
    new = farm.submitted("ana", "labelled", "--label", "driver=555", "--label", "sweep", size=96)
    assert old != new, "other labels make another campaign"
    listed = farm.answer("bob", "status", "--label", "sweep")["campaigns"]
    assert [(one["campaign_id"], one["labels"]) for one in listed] == [
        (new, {"driver": "555", "sweep": ""}),
        (old, {"driver": "550", "sweep": ""}),
    ]
    assert "driver=550, sweep" in farm.call("bob", "status").out
    assert [one["campaign_id"] for one in farm.answer("bob", "results", "--label", "driver=550")] == [old]
    assert farm.answer("bob", "status", "label:sweep~1")["campaign_id"] == old
    assert farm.call("bob", "compare", "label:driver=550", "label:sweep").code == 0
    assert farm.answer("ana", "cancel", "label:driver=550")["cancelled"] == 1
    assert farm.answer("ana", "cancel", new)["cancelled"] == 1
    for arguments, words in (
        (["results", "--label", "sweeep"], "no campaign has the label 'sweeep'"),
        (["status", "label:sweep~2"], "no campaign 'label:sweep~2': 2 of them have the label 'sweep'"),
        (["submit", "models.yaml", "--detach", "--label", "two words"], "label 'two words': expected a word"),
    ):
        refused = farm.call("ana", *arguments)
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert words in refused.err
    odd = {"labels": {"a b": ""}, "document": CAMPAIGN, "file": "f", "models": []}
    with pytest.raises(UsageError, match="label 'a b'"):
        farm.farm.requests.place(Request(**odd))


def test_a_reserved_device_takes_jobs_of_its_holder_alone_until_it_is_released(farm: Elsewhere) -> None:
    foreign = farm.submitted("ana", "kept-out", size=104)
    made = farm.answer("bob", "devices", "reserve", "host-cpu", "--for", "2h", "--reason", "new driver")
    assert (made["device"], made["by"], made["running"]) == ("host-cpu", "bob", 0)
    (shown,) = [d for d in farm.answer("ana", "devices")["devices"] if d["device_id"] == "host-cpu"]
    assert (shown["state"], shown["reserved"]["by"], shown["reserved"]["reason"]) == (
        "reserved", "bob", "new driver",
    )  # fmt: skip
    assert "excluded: host-cpu beside it is reserved by bob until" in farm.call("ana", "devices").out
    cell = farm.farm.reading.cells(foreign)[0].cell_id
    assert "host-cpu: reserved by bob until" in farm.call("ana", "show", "--why", cell).out
    for arguments, words in (
        (["devices", "reserve", "pocl-0", "--for", "1h"], "host-cpu, which excludes it, is reserved by bob"),
        (["devices", "release", "host-cpu"], "host-cpu is reserved by bob until"),
        (["devices", "reserve", "host-cpu", "--for", "2d"], "a reservation lasts from 1 minute to 1 day,"),
        (
            ["devices", "reserve", "host-cpu", "--for", "soon"],
            "--for soon: expected seconds, minutes, hours or days",
        ),
        (["devices", "reserve", "host-cpu"], "the time is needed"),
    ):
        refused = farm.call("ana", *arguments)
        assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1), refused.err
        assert words in refused.err
    for arguments, words in (
        (["devices", "reserve", "host-cpu", "--for", "3h"], "its holder may end that earlier"),
        (["devices", "reserve", "pocl-0", "--for", "1h"], "bob has host-cpu already, of 2 devices"),
    ):
        assert words in farm.call("bob", *arguments).err
    assert farm.call("bob", "devices", "release", "host-cpu").out == "host-cpu gets cells again\n"
    assert "others come first until" in farm.call("bob", "devices", "reserve", "host-cpu", "--for", "1h").err
    assert farm.answer("ana", "devices", "reserve", "pocl-0", "--for", "30m")["by"] == "ana"
    farm.answer("root", "devices", "quarantine", "pocl-0")
    freed = farm.call("root", "devices", "release", "pocl-0").out
    assert "pocl-0 is still reserved by ana until" in freed
    assert farm.call("root", "devices", "release", "pocl-0").out == "pocl-0 gets cells again\n"
    farm.answer("root", "cancel", foreign)


def test_two_users_who_submit_the_same_have_a_campaign_each(farm: Elsewhere) -> None:
    first, again = (farm.submitted("ana", "same", size=32) for _ in range(2))
    assert first == again, "an unfinished campaign is continued"
    assert farm.submitted("bob", "same", size=32) != first


def test_no_file_of_a_campaign_counts_for_its_sender_any_more(farm: Elsewhere) -> None:
    folder = farm.folder / "ana"
    farm.write("ana", "own-data")
    np.save(folder / "own.npy", np.zeros((1, 1, 8), np.float32))  # stored as it is
    campaign = (folder / "models.yaml").read_text()
    data = "small.tflite, inputs: {input: {data: own.npy}}}"
    (folder / "models.yaml").write_text(campaign.replace("small.tflite}", data))
    ran = farm.call("ana", "submit", "models.yaml", "--detach")
    assert ran.code == 0, ran.err
    sha256 = hashlib.sha256((folder / "own.npy").read_bytes()).hexdigest()
    assert farm.endpoint.store.find(sha256) is not None, "it was sent"
    assert farm.endpoint.store.bytes_of_sender("user ana") == 0


def test_a_request_says_of_no_file_but_its_campaigns_that_a_campaign_names_it(farm: Elsewhere) -> None:
    farm.submitted("bob", "names")
    store, other = farm.endpoint.store, farm.folder / "server" / "other.txt"
    other.write_text("of the farm")
    spare, small = (unary_model(size=size) for size in (56, 8))
    name = hashlib.sha256(spare).hexdigest()
    own = {"sha256": hashlib.sha256(small).hexdigest(), "size_bytes": len(small)}
    headers = {"authorization": f"Bearer {farm.tokens['bob']}"}
    with httpx.Client(base_url=farm.endpoint.url, headers=headers, verify=False, trust_env=False) as client:
        whole = {"content-range": f"bytes 0-{len(spare) - 1}/{len(spare)}"}
        assert client.put(f"/models/{name}", content=spare, headers=whole).status_code == 201
        for sha256 in (name, "*", f"../../{other.stem}"):
            models = [
                {"id": "more", "file": {"sha256": sha256, "size_bytes": 1}},
                {"id": "small", "file": own},
            ]
            request = {"document": CAMPAIGN.replace("NAME", "names"), "file": "f", "models": models}
            answer = client.post(f"/farm/{VERSION}/requests.place", json={"request": request})
            assert answer.status_code == (200 if sha256 == name else 422), answer.text
            assert (store.bytes_of_sender("user bob"), other.exists()) == (len(spare), True), sha256


@pytest.mark.parametrize("kind", ["revoked", "expired", "read-only", "invented"])
def test_a_token_that_may_not_submit_is_one_clear_line_and_nothing_is_sent(
    farm: Elsewhere, kind: str
) -> None:
    name = f"of-{kind}"
    scopes = [Scope.READ] if kind == "read-only" else [Scope.SUBMIT]
    farm.add(
        name,
        scopes,
        valid=timedelta(seconds=-1) if kind == "expired" else None,
        address=farm.endpoint.address,
    )
    if kind == "revoked":
        farm.users.revoke(name)
    if kind == "invented":
        farm.tokens[name] = farm.tokens[name].replace(".", ".x", 1)
    before, files = farm.cells, sorted(farm.endpoint.store.root.rglob("*"))
    farm.write(name, "never", size=48)
    ran = farm.call(name, "submit", "models.yaml")
    words = {
        "revoked": f"the token of user {name} was revoked; the administrator makes a new one",
        "expired": f"the token of user {name} expired at",
        "read-only": f"the token of user {name} may not do that: it needs scope submit, it has read",
        "invented": "no user has this token; see FARM_TOKEN",
    }
    assert (ran.code, ran.out) == (2, "")
    assert words[kind] in ran.err
    assert ran.err.count("\n") == 1
    assert (farm.cells, sorted(farm.endpoint.store.root.rglob("*"))) == (before, files)


def test_what_needs_the_server_says_so(farm: Elsewhere) -> None:
    for verb in (["doctor"], ["db", "check"], ["lab", "users", "list"], ["lab", "agents", "list"]):
        ran = farm.call("root", *verb)
        assert (ran.code, "this is done on the server" in ran.err) == (2, True), ran.err
    both = farm.call("ana", "status", FARM_DATABASE_URL="postgresql://farm@lab/farm")
    assert (both.code, "FARM_URL and FARM_DATABASE_URL are both set" in both.err) == (2, True)
    alone = farm.call("ana", "status", FARM_URL="")
    assert (alone.code, "go together" in alone.err) == (2, True)
    absent = farm.call("ana", "status", FARM_URL="http://127.0.0.1:9")
    assert (absent.code, "the farm at http://127.0.0.1:9 does not answer" in absent.err) == (4, True)


def test_a_farm_with_another_authority_than_the_tokens_is_not_trusted(farm: Elsewhere) -> None:
    secret = farm.tokens["ana"].split(".")[1]
    wrong = farm.call("ana", "status", FARM_TOKEN=f"ana.{secret}.{'0' * 32}")
    assert (wrong.code, "shows another CA than FARM_TOKEN names" in wrong.err) == (2, True)
    none = farm.call("ana", "status", FARM_TOKEN=f"ana.{secret}")
    assert (none.code, "certificate verify failed" in none.err) == (4, True)


@pytest.mark.parametrize("call", ["reading.campaign", "reading.cell", "steering.cancel"])
def test_an_endless_reference_is_refused_without_a_word_about_the_database(
    farm: Elsewhere, call: str
) -> None:
    name = {"reading.campaign": "ref", "reading.cell": "words", "steering.cancel": "ref"}[call]
    for text in ("x" * 60_000, "x " * 2_000, "label:" + "x" * 60_000):
        answer = httpx.post(
            f"{farm.endpoint.url}/farm/{VERSION}/{call}",
            json={name: text},
            headers={"authorization": f"Bearer {farm.tokens['ana']}"},
            verify=False,
            trust_env=False,
        )
        assert answer.status_code == 422, answer.text
        assert "at most 300 are read" in answer.json()["error"]


def test_odd_calls_are_refused_one_by_one(farm: Elsewhere) -> None:
    headers = {"authorization": f"Bearer {farm.tokens['ana']}"}
    document = CAMPAIGN.replace("NAME", "odd")
    before = farm.cells
    with httpx.Client(base_url=farm.endpoint.url, headers=headers, verify=False, trust_env=False) as client:

        def ask(call: str, body: bytes = b"{}", version: int = VERSION) -> httpx.Response:
            return client.post(f"/farm/{version}/{call}", content=body)

        assert ask("reading.campaigns").status_code == 200
        assert ask("reading.campaigns", version=VERSION + 1).status_code == 404
        for call in ("reading.store", "reading.__init__", "database.engine", "steering._require_own", "x"):
            assert ask(call).status_code == 404
        for body in (
            b"",
            b"[]",
            b"null",
            b"{",
            b'{"ref": 1}',
            b'{"ref": null, "more": 1}',
            rb'{"ref": "\u0000"}',
        ):
            assert ask("reading.campaign", body).status_code == 422
        for changed in (
            {"priority": 1},
            {"priority": -101},
            {"models": []},
            {"document": "{}"},
            {"document": document + "#" * MAX_FILE_BYTES},
            {"only": "x"},
        ):
            request = {"document": document, "file": "f", "models": [{"id": "small", "file": None}]} | changed
            answer = ask("requests.place", json.dumps({"request": request}).encode())
            assert (answer.status_code, answer.json()["exit_code"]) == (422, 2), changed
        named = {"document": "{}", "file": "n" * 1_000_000, "models": []}
        answer = ask("requests.place", json.dumps({"request": named}).encode())
        assert "1:1: " in answer.json()["error"]
        assert len(answer.content) < 100_000, "each mistake repeats the name"
        unknown = {"sha256": "0" * 64, "size_bytes": 1}
        request = {"document": document, "file": "f", "models": [{"id": "small", "file": unknown}]}
        answer = ask("requests.place", json.dumps({"request": request}).encode())
        assert "the farm has no file 000000000000; submit again" in answer.json()["error"]
        assert ask("reading.campaigns", b" " * (LARGEST_CALL_BYTES + 1)).status_code == 413
        assert httpx.post(f"{farm.endpoint.url}/farm/1/x", verify=False, trust_env=False).status_code == 401
    assert farm.cells == before


def test_what_a_request_says_of_its_files_is_bounded_like_a_message(farm: Elsewhere) -> None:
    """Stored, any of these would make a job that no message can hold, and stop the scheduler for good."""
    content, array = unary_model(size=8), io.BytesIO()
    np.save(array, np.zeros((2, 1, 8), np.float32))
    store = farm.endpoint.store
    model, data = (store.put(io.BytesIO(c), "sent") for c in (content, array.getvalue()))
    own = "small.tflite, inputs: {input: {data: own.npy}}}"
    document = CAMPAIGN.replace("NAME", "bounds").replace("small.tflite}", own)
    headers = {"authorization": f"Bearer {farm.tokens['ana']}"}
    with httpx.Client(base_url=farm.endpoint.url, headers=headers, verify=False, trust_env=False) as client:

        def place(sent: dict[str, object], **changed: object) -> httpx.Response:
            named = {"sha256": data.sha256, "size_bytes": 1, "shape": [1, 8]} | sent
            file = {"sha256": model.sha256, "size_bytes": 1}
            entry = {"id": "small", "file": file, "inputs": {"input": named}} | changed
            request = {"document": document, "file": "f", "models": [entry]}
            return client.post(f"/farm/{VERSION}/requests.place", json={"request": request})

        before = farm.cells
        for sent in (
            {"shape": [-5]}, {"shape": [2**31]}, {"shape": [1] * 33}, {"sha256": "*"}, {"size_bytes": 0},
            {"size_bytes": 2**63},
        ):  # fmt: skip
            assert place(sent).status_code == 422, sent
        for sets in (1, 10**30):
            assert place({}, input_sets=sets).status_code == 422
        for odd in ({"sha256": "*", "size_bytes": 1}, {"sha256": model.sha256, "size_bytes": 10**30}):
            assert place({}, file=odd).status_code == place({}, data=odd).status_code == 422
        assert farm.cells == before
        placed = place({})
    assert placed.status_code == 200, placed.text
    (spec,) = farm.begin(placed.json()["submitted"]["campaign_id"]).inputs.values()
    assert spec.data is not None
    assert spec.data.size_bytes == data.size_bytes, "as it is here, whatever the sender says"


def test_numbers_and_names_that_no_call_can_use_are_no_fault_of_the_farm(farm: Elsewhere) -> None:
    headers = {"authorization": f"Bearer {farm.tokens['root']}"}
    ended = farm.submitted("ana", "ended", size=72)
    farm.answer("ana", "cancel", ended)

    def ask(call: str, body: str) -> httpx.Response:
        url = f"{farm.endpoint.url}/farm/{VERSION}/{call}"
        return httpx.post(url, content=body, headers=headers, verify=False, trust_env=False)

    for seconds in ("NaN", "Infinity", "1e300", "-1e300", "1e12"):
        for call, name in (
            ("steering.reserve", '"name": "pocl-0"'),
            ("refinements.refine", f'"ref": "{ended}"'),
        ):
            answer = ask(call, f'{{{name}, "seconds": {seconds}}}')
            assert answer.status_code == 422, (call, seconds, answer.text)
    noise = '"session_sd": 0, "sessions": 3, "delegate": "cpu", "measured_at": ""'
    told = ask("steering.record_noise", f'{{"device_id": "pocl-0", "noise": {{"floor": NaN, {noise}}}}}')
    assert "noise.floor: Input should be a finite number" in told.json()["error"]
    assert ask("reading.model_facts", '{"sha256": "../x"}').text == "null"
    assert ask("reading.waiting", f'{{"ref": "{ended}", "limit": -1}}').text == "[]"
