from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.envelope import (
    LIFETIME_S,
    MAX_DEPTH,
    Freshness,
    IssueClock,
    PublicKey,
    SigningKey,
    check_proof,
    key_id_of,
    keys_message,
    open_envelope,
    read_keys,
    seal,
)
from agent.wire.queue import MAX_ENVELOPE_BYTES, MAX_VALUES

KEY = SigningKey.new()
MESSAGE = {"type": "result", "attempt_id": "a1", "epoch": 3, "cell_id": "c", "device_id": "rack-1.cpu"}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def sealed(message=MESSAGE, issued=1000.0, key=KEY, agent_id="rack-1"):
    return seal(key, agent_id, json.dumps(message).encode(), issued)


def signed(key, body):
    """Seal any body, as a holder of the key could, whatever `seal` would refuse."""
    signature = key.sign(b"delegate-farm envelope 1\n" + body.encode())
    text = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    return f"1.{key.public.key_id}.{text}.{body}"


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name != "type"), VALUES, max_size=5))
def test_what_was_sealed_comes_out(extra):
    message = {**MESSAGE, **{f"x{name}": value for name, value in extra.items()}}
    opened = open_envelope(sealed(message), KEY.public)
    assert json.loads(opened.payload) == message
    assert (opened.kind, opened.agent_id) == ("result", "rack-1")
    assert opened.expires == opened.issued + LIFETIME_S


def test_the_body_is_canonical_and_says_what_it_is_about():
    envelope = sealed()
    body = json.loads(envelope.split(".", 3)[3])
    assert {name: body[name] for name in ("v", "kind", "attempt_id", "device_id", "epoch")} == {
        "v": 1, "kind": "result", "attempt_id": "a1", "device_id": "rack-1.cpu", "epoch": 3,
    }  # fmt: skip
    text = envelope.split(".", 3)[3]
    assert text == json.dumps(body, sort_keys=True, separators=(",", ":"))


@given(st.data())
def test_no_changed_byte_is_accepted(data):
    envelope = sealed()
    place = data.draw(st.integers(0, len(envelope) - 1))
    other = data.draw(st.characters(codec="ascii").filter(lambda letter: letter != envelope[place]))
    with pytest.raises(ValueError, match=r"sign|envelope|key|form"):
        open_envelope(envelope[:place] + other + envelope[place + 1 :], KEY.public)


@given(
    st.text() | st.sampled_from(["[" * 100_000, "1." + "[" * 100_000, '{"agent_id":"a","payload":"{}"}', ""])
)
def test_what_nobody_signed_is_a_value_error(text):
    for opener in (key_id_of, lambda envelope: open_envelope(envelope, KEY.public)):
        with pytest.raises(ValueError, match=r"."):
            opener(text)


def test_another_key_is_refused_also_under_a_known_name():
    stranger = SigningKey.new()
    forged = sealed(key=stranger)
    with pytest.raises(ValueError, match="signed with key"):
        open_envelope(forged, KEY.public)
    with pytest.raises(ValueError, match="signature is wrong"):
        open_envelope(forged.replace(stranger.public.key_id, KEY.public.key_id, 1), KEY.public)


def test_a_size_beyond_the_limit_is_refused_before_anything_is_read():
    with pytest.raises(ValueError, match="the limit is"):
        open_envelope("1." + "x" * MAX_ENVELOPE_BYTES, KEY.public)


@pytest.mark.parametrize("depth", [MAX_DEPTH, 5000])
def test_depth_is_limited_even_for_who_holds_a_key(depth):
    with pytest.raises(ValueError, match="nested"):
        open_envelope(signed(KEY, '{"payload":' + "[" * depth + "]" * depth + "}"), KEY.public)
    with pytest.raises(ValueError, match="nested"):
        seal(KEY, "a", b'{"type":"x","y":' + b"[" * depth + b"]" * depth + b"}", 0.0)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"kind": "cancel"}, "contradict"),
        ({"attempt_id": "a2"}, "contradict"),
        ({"epoch": 4}, "contradict"),
        ({"v": 2}, "malformed"),
        ({"more": 1}, "malformed"),
        ({"payload": []}, "malformed"),
        ({"agent_id": 7}, "malformed"),
        ({"issued": True}, "body is malformed"),
        ({"issued": "1000"}, "body is malformed"),
        ({"issued": -1.0}, "body is malformed"),
        ({"issued": 1e11, "expires": 1e11}, "body is malformed"),
        ({"nonce": "short"}, "nonce or times"),
        ({"expires": 1e9}, "nonce or times"),
        ({"expires": 1.0}, "nonce or times"),
    ],
)
def test_a_body_of_another_form_is_refused_though_its_signature_is_right(changed, why):
    body = json.loads(sealed().split(".", 3)[3]) | changed
    with pytest.raises(ValueError, match=why):
        open_envelope(signed(KEY, json.dumps(body)), KEY.public)


@pytest.mark.parametrize(
    "times",
    [
        {"issued": 0, "expires": 0},
        {"issued": 0.5, "expires": 0.5},
        {"issued": 7.0, "expires": 7.0 + LIFETIME_S},
    ],
)
def test_times_at_their_bounds_are_good(times):
    body = json.loads(sealed().split(".", 3)[3]) | times
    opened = open_envelope(signed(KEY, json.dumps(body)), KEY.public)
    assert (opened.issued, opened.expires) == (times["issued"], times["expires"])


@pytest.mark.parametrize(
    "text", ["1.{id}.c2ln", "1.short.c2ln.{{}}", "2.{id}.c2ln.{{}}", "1.{id}.c2ln.{{é}}"]
)
def test_what_has_another_form_names_no_key(text):
    with pytest.raises(ValueError, match="no signed envelope"):
        key_id_of(text.format(id=KEY.public.key_id))


def test_an_envelope_of_just_the_limit_is_looked_at():
    head = f"1.{KEY.public.key_id}.c2ln."
    assert key_id_of(head + "x" * (MAX_ENVELOPE_BYTES - len(head))) == KEY.public.key_id


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        (base64.urlsafe_b64encode(b"s" * 63).decode().rstrip("="), "of 63 bytes, not of 64"),
        ("!" * 86, "a signature is malformed"),
        (base64.urlsafe_b64encode(b"s" * 64).decode().rstrip("=")[:-1] + "x", "a signature is malformed"),
    ],
)
def test_a_signature_has_one_form(signature, why):
    with pytest.raises(ValueError, match=why):
        open_envelope(f"1.{KEY.public.key_id}.{signature}.{{}}", KEY.public)


def test_only_what_was_signed_is_parsed(monkeypatch):
    parse, parsed = json.loads, []

    def followed(text, **options):
        parsed.append(text)
        return parse(text, **options)

    forged = sealed(key=SigningKey.new())
    monkeypatch.setattr(json, "loads", followed)
    for envelope in (forged, forged.replace(key_id_of(forged), KEY.public.key_id, 1)):
        with pytest.raises(ValueError, match="sign"):
            open_envelope(envelope, KEY.public)
    assert parsed == []


@pytest.mark.parametrize("text", ["[]", "7", '"text"'])
def test_a_message_is_an_object(text):
    with pytest.raises(ValueError, match="not a JSON object"):
        seal(KEY, "a", text.encode(), 0.0)


@pytest.mark.parametrize("count", [1, 8])
def test_a_farm_has_a_few_keys(count):
    keys = tuple(SigningKey.new().public for _ in range(count))
    assert [key.key_id for key in read_keys(keys_message(keys))] == [key.key_id for key in keys]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ([], "1 to 8"),
        ([KEY.public.text] * 9, "1 to 8"),
        (KEY.public.text, "1 to 8"),
        (None, "1 to 8"),
        ([7], "a public key is malformed"),
        (["short"], "a public key"),
    ],
    ids=["none", "nine", "a text", "null", "a number", "a short key"],
)
def test_an_announcement_of_no_keys_or_of_many_is_refused(keys, why):
    with pytest.raises(ValueError, match=why):
        read_keys(json.dumps({"type": "farm-keys", "keys": keys}).encode())


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_json_lacks_for_numbers_are_refused(word):
    with pytest.raises(ValueError, match="not a JSON number"):
        seal(KEY, "a", f'{{"type":"x","y":{word}}}'.encode(), 0.0)


def test_a_repetition_is_refused():
    fresh, envelope = Freshness(), open_envelope(sealed(), KEY.public)
    fresh.accept(envelope)
    with pytest.raises(ValueError, match="received before"):
        fresh.accept(envelope)


def test_age_is_told_by_the_senders_own_clock_and_by_how_long_it_has_run_since():
    passed = [0.0]
    fresh = Freshness(monotonic=lambda: passed[0])
    old = open_envelope(sealed(issued=1000.0), KEY.public)
    fresh.accept(open_envelope(sealed(issued=1000.0 + LIFETIME_S), KEY.public))
    fresh.accept(old)
    older = open_envelope(sealed(issued=999.0), KEY.public)
    with pytest.raises(ValueError, match="expired"):
        fresh.accept(older)
    last = open_envelope(sealed(issued=1000.0 + LIFETIME_S), KEY.public)
    passed[0] = LIFETIME_S + 1
    with pytest.raises(ValueError, match="expired"):
        fresh.accept(last)


def test_what_is_known_of_a_senders_clock_holds_after_a_restart():
    before = open_envelope(sealed(issued=10.0), KEY.public)
    with pytest.raises(ValueError, match="expired"):
        Freshness(newest=11.0 + LIFETIME_S).accept(before)


def test_a_repetition_is_refused_for_as_long_as_it_would_not_have_expired():
    passed = [500.0]
    fresh = Freshness(monotonic=lambda: passed[0])
    first = open_envelope(sealed(issued=1000.0), KEY.public)
    fresh.accept(first)
    fresh.accept(open_envelope(sealed(issued=first.expires), KEY.public))
    with pytest.raises(ValueError, match="received before"):
        fresh.accept(first)
    assert fresh.now() == first.expires
    passed[0] += 1.0
    assert fresh.now() == first.expires + 1.0


def test_envelopes_are_forgotten_once_they_are_too_old_to_be_accepted():
    passed = [0.0]
    fresh = Freshness(monotonic=lambda: passed[0])
    for day in range(50):
        passed[0] = day * LIFETIME_S
        for _ in range(3):
            fresh.accept(open_envelope(sealed(issued=1000.0 + passed[0]), KEY.public))
    assert len(fresh._seen) < 12


def test_stamps_are_never_set_back():
    wall, passed = [100.0], [0.0]
    clock = IssueClock(lambda: wall[0], lambda: passed[0])
    assert clock.now() == 100.0
    wall[0], passed[0] = 20.0, 5.0
    assert clock.now() == 105.0
    clock.advance_to(500.0)
    passed[0] = 6.0
    assert clock.now() == 501.0


def test_a_key_outlives_its_text_and_its_repr_tells_nothing():
    again = SigningKey.read(KEY.secret())
    assert again.public.text == KEY.public.text
    assert KEY.secret() not in repr(KEY)
    open_envelope(sealed(key=again), PublicKey.read(KEY.public.text))


@pytest.mark.parametrize(
    "text", ["", "x", "é" * 43, base64.urlsafe_b64encode(b"x" * 31).decode().rstrip("=")]
)
def test_what_is_no_key_is_a_value_error(text):
    with pytest.raises(ValueError, match="key"):
        PublicKey.read(text)


def test_a_proof_and_an_envelope_are_never_taken_for_each_other():
    proof, token = KEY.prove("{}"), "{}"
    with pytest.raises(ValueError, match="signature is wrong"):
        open_envelope(f"1.{KEY.public.key_id}.{proof}.{token}", KEY.public)


def test_a_proof_is_of_one_key_and_one_token():
    proof = KEY.prove("token")
    check_proof(KEY.public, "token", proof)
    for key, token in ((KEY.public, "other"), (SigningKey.new().public, "token")):
        with pytest.raises(ValueError, match="signature"):
            check_proof(key, token, proof)


def test_a_sender_cannot_fill_the_memory_with_nonces():
    fresh = Freshness(most=10)
    sent = [open_envelope(sealed(issued=1000.0 + number), KEY.public) for number in range(50)]
    for count, envelope in enumerate(sent, 1):
        fresh.accept(envelope)
        assert len(fresh._seen) == min(count, 10)
    for envelope in sent:
        with pytest.raises(ValueError, match=r"received before|others since"):
            fresh.accept(envelope)
    fresh.accept(open_envelope(sealed(issued=1049.5), KEY.public))


def test_a_body_of_nothing_but_brackets_is_refused_before_it_is_parsed():
    body = '{"payload":[' + "[]," * MAX_VALUES + "[]]}"
    with pytest.raises(ValueError, match="brackets and commas"):
        open_envelope(signed(KEY, body), KEY.public)


def test_brackets_and_commas_are_counted_before_anything_is_read():
    head = f"1.{KEY.public.key_id}.c2ln."
    assert key_id_of(head + "[{," * (MAX_VALUES // 3) + "," * (MAX_VALUES % 3)) == KEY.public.key_id
    with pytest.raises(ValueError, match="brackets and commas"):
        key_id_of(head + "," * (MAX_VALUES + 1))
