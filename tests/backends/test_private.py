"""Private facts of a model server: how they are found and hidden, and that no client can learn them by asking."""

from __future__ import annotations

import base64
import json
import string
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.strategies import split
from tests.unit.test_stream_paths import REQUEST
from toolwire.config import BackendConfig, LimitsConfig, RouteOptions
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from toolwire.formats.families import sentinel
from toolwire.model import ModelReply, ReplyChoice, Text, ToolChoice, ToolSpec, ToolUse
from toolwire.pipeline.answers.stage_chain import StageChain
from toolwire.pipeline.paths.relay import Relay
from toolwire.pipeline.paths.relay_path import RelayPath
from toolwire.pipeline.paths.stream_path import StreamPath
from toolwire.pipeline.paths.stream_paths import FastPath, Transcode
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.chat.reader import ChatReader
from toolwire.protocols.chat.writer import ChatWriter
from toolwire.protocols.streams import WriteOptions
from toolwire.testing import chunk, frame, read_frames
from toolwire.upstream.servers.leak_detection import MOST_FIELDS, LeakDetector, check_reply, check_whole, leak_detector
from toolwire.upstream.servers.private_data import HIDDEN, NOTHING, PrivateData, forms, part_size, private_of
from toolwire.upstream.servers.upstream_errors import (
    MAX_MESSAGE_CHARS,
    clean_error,
    clean_text,
    hide_private,
    read_refusal,
)

KEY = "Upstream/Key+0123456789-abcdefghij"
OTHER = "other.token~9876543210"
PRIVATE = private_of(
    BackendConfig(
        url="https://bob:hunter2%2Fhunter2@gpu-1.internal:8443/v1",
        api_key=KEY,
        headers={"X-Api-Token": f"Token {OTHER}", "X-Team": "research-team"},
    )
)

# --- what is a secret -----------------------------------------------------------------------------------------------


def secrets(**config: Any) -> tuple[str, ...]:
    return private_of(BackendConfig(**config)).secrets


def test_what_is_private() -> None:
    userinfo = base64.b64encode(b"bob:hunter2/hunter2").decode()
    assert PRIVATE.secrets == (KEY, "hunter2/hunter2", userinfo, OTHER)
    assert PRIVATE.hosts == ("gpu-1.internal",)
    assert set(PRIVATE.words) == {f"Token {OTHER}", "research-team"}
    assert private_of(BackendConfig()) == NOTHING
    assert not leak_detector(NOTHING)
    together = PrivateData.together([PRIVATE, private_of(BackendConfig(api_key="a-second-key-123")), PRIVATE])
    assert together.secrets == (*PRIVATE.secrets, "a-second-key-123")
    several = [PrivateData((f"host{n}",), (f"secret{n}",), (f"word{n}",)) for n in (1, 2, 1)]
    assert PrivateData.together(several) == PrivateData(
        ("host1", "host2"), ("secret1", "secret2"), ("word1", "word2")
    ), "each once"
    assert KEY not in repr(BackendConfig(api_key=KEY, headers={"a": KEY}))


@pytest.mark.parametrize("key", ["", "none", "EMPTY", "ollama", "lm-studio", "sk-no-key-required", "TOKEN-ABC123", "x"])
def test_what_stands_for_no_key_is_none(key: str) -> None:
    """Servers without keys are given such words, and models write about servers."""
    assert secrets(api_key=key) == ()
    assert secrets(headers={"Authorization": f"Bearer {key}"}) == ()


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("Authorization", "Bearer abcdefgh", ("abcdefgh",)),
        ("authorization", "Basic " + base64.b64encode(b"me:pass-word").decode(), ("bWU6cGFzcy13b3Jk", "pass-word")),
        ("Authorization", "abcdefgh", ("abcdefgh",)),
        ("Cookie", "session=abcdefgh; lang=en", ("abcdefgh",)),
        ("api-key", "abcdefgh", ("abcdefgh",)),
        ("X-Goog-Signature", "a=b=c=d=e=f", ("a=b=c=d=e=f",)),
        ("X-Upstream", "Zq3v9Kx81LmN02pQrStU", ("Zq3v9Kx81LmN02pQrStU",)),
        ("X-Upstream", "plain words of any length", ()),
        ("X-Version", "2024-10-21-preview-of-it", ()),
        ("Accept", "application/json", ()),
    ],
)
def test_secrets_in_headers(name: str, value: str, found: tuple[str, ...]) -> None:
    assert secrets(headers={name: value}) == found


# --- in errors ------------------------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda key: key,
    "in a URL": lambda key: quote(key, safe=""),
    "in a form": quote_plus,
    "in JSON": lambda key: json.dumps(key)[1:-1],
    "with escaped slashes": lambda key: key.replace("/", "\\/"),
    "in hexadecimal digits": lambda key: key.encode().hex(),
    "in base64": lambda key: base64.b64encode(key.encode()).decode(),
    "in base64 for URLs": lambda key: base64.urlsafe_b64encode(key.encode()).decode(),
    **{
        f"in base64 after {n} characters": lambda key, n=n: base64.b64encode(
            b"u" * n + b":" + key.encode() + b"!"
        ).decode()
        for n in range(4)
    },
    "the first half": lambda key: key[: part_size(key)],
    "the last half": lambda key: key[-part_size(key) :],
    "all but the first": lambda key: key[1:],
    "all but the last": lambda key: key[:-1],
}


@every("form", FORMS)
@every("around", ["bad key {}.", "x{}y", '{{"headers": {{"authorization": "Bearer {}"}}}}', "http://u:{}@h:1/v1"])
def test_no_error_shows_a_secret(form: str, around: str) -> None:
    said = FORMS[form](KEY)
    text = around.format(said)
    shown = clean_text(text, private=PRIVATE)
    for known in forms(KEY):
        assert known[: part_size(known)] not in shown
        assert known[-part_size(known) :] not in shown
    assert said[3:-3] not in shown
    envelope = json.dumps({"error": {"message": text}}).encode()
    for status in (400, 401, 404, 413, 422, 429, 500, 503):
        assert said not in read_refusal(status, {}, envelope, private=PRIVATE).message
        assert said not in read_refusal(status, {}, text.encode(), private=PRIVATE).message


@every("length", range(450, 520, 3))
def test_a_secret_at_the_place_where_a_message_is_cut(length: int) -> None:
    """In-band errors are cut before anybody knows what is secret."""
    text = "x " * (length // 2) + KEY + " and so on" * 20
    reader = ChatProtocol().reader(frame_bytes=1 << 16)
    (fault,) = reader.feed(frame({"error": {"message": text}}))
    assert isinstance(fault, Fault)
    for shown in (clean_error(fault.error, private=PRIVATE).message, clean_text(text, private=PRIVATE)):
        assert not any(KEY[:size] in shown for size in range(4, len(KEY)))
        assert len(shown) <= MAX_MESSAGE_CHARS


def test_a_secret_in_an_error_that_is_only_quoted() -> None:
    for error in ({"code": 401, "seen": f"Bearer {KEY}"}, [KEY], {"a": ["x" * 170, KEY]}):
        with pytest.raises(BackendFault) as caught:
            ChatProtocol().read_reply(json.dumps({"error": error}).encode())
        shown = clean_error(caught.value, private=PRIVATE).message
        assert not any(KEY[:size] in shown for size in range(4, len(KEY)))


@every("url", ["http://[::1]:45883/v1", "http://127.0.0.1:45883/v1", "http://gpu-1:45883/v1"])
@every("around", ["{}", "({})", "[{}]", '"{}"', "dial {} now", "<{}>"])
def test_the_own_address_goes_whole(url: str, around: str) -> None:
    private = private_of(BackendConfig(kind="openai_chat", url=url))
    for text in (url, url.removeprefix("http://"), url.removeprefix("http://").removesuffix("/v1")):
        assert clean_text(around.format(text), private=private) == around.format("[address]")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("dial http://127.0.0.1:45883/v1 failed", "dial [address] failed"),
        ("dial https://gpu-1.internal:8443/v1/chat/completions: refused", "dial [address] refused"),
        ("lookup gpu-1.internal: no such host", "lookup [address]: no such host"),
        ("GPU-1.internal:8443/v1 and gpu-1.internal.", "[address] and [address]."),
        ("my-gpu-1.internals are fine", "my-gpu-1.internals are fine"),
        ("team research-team is over its quota", f"team {HIDDEN} is over its quota"),
        ("the research-teams", "the research-teams"),
    ],
)
def test_addresses_and_words(text: str, shown: str) -> None:
    assert clean_text(text, private=PRIVATE) == shown
    assert clean_text(shown, private=PRIVATE) == shown


def test_hiding_twice_changes_nothing() -> None:
    fault = BackendFault(f"no {KEY} at gpu-1.internal:1", code="upstream_auth", transient=True, upstream_status=401)
    once = hide_private(fault, private=PRIVATE)
    assert once.message == f"no {HIDDEN} at [address]"
    assert (once.code, once.transient, once.upstream_status) == ("upstream_auth", True, 401)
    assert hide_private(once, private=PRIVATE) is once


def test_nobody_can_guess_it_letter_by_letter() -> None:
    """A server repeats what it is sent, such as the name of a model. Whether a guess is right must not show before half
    of it is."""
    for place in (slice(0, 11), slice(5, 17), slice(-11, None), slice(3, -3)):
        guess = KEY[place]
        assert clean_text(f"no model {guess}", private=PRIVATE) == f"no model {guess}"
        assert not PRIVATE.occurs_in(guess.encode())


@given(st.text(), st.sampled_from(sorted(FORMS)))
def test_law_what_is_hidden_is_all_that_changes(text: str, form: str) -> None:
    private = PrivateData(secrets=(KEY,))
    assert private.show(private.hide(text)) == text
    assert private.show(private.hide(f"{text} {FORMS[form](KEY)}")).startswith(f"{text} ")


def test_hostile_errors_take_no_time() -> None:
    """Patterns are run over a bounded text, line ends and dots without end among them; the test would not end."""
    for text in (
        "\n" * 2**20,
        "a." * 2**19,
        " " * 2**20,
        'File "' * 2**17,
        "\tat " * 2**18,
        "…" * 2**18,
        KEY[:-1] * 2**15,
    ):
        assert len(clean_text(text, private=PRIVATE)) <= MAX_MESSAGE_CHARS


# --- in answers -----------------------------------------------------------------------------------------------------


@every("form", FORMS)
def test_no_whole_answer_shows_a_secret(form: str) -> None:
    said = FORMS[form](KEY)
    for text in (said, f"a{said}b"):
        for body in (
            json.dumps({"choices": [{"message": {"content": text}}]}).encode(),
            b'{"choices":[],"x-%b":1}' % text.encode(),
            json.dumps({"a": text}).replace("/", "\\/").encode(),
            json.dumps({"a": "@"}).replace("@", "".join(f"\\u{ord(c):04x}" for c in text)).encode(),
        ):
            with pytest.raises(BackendFault, match="contains a secret of the gateway"):
                check_whole(PRIVATE, body)
        for part in (Text(text), ToolUse("c", "f", text), ToolUse(text, "f", "{}")):
            with pytest.raises(BackendFault, match="contains a secret of the gateway"):
                check_reply(PRIVATE, ModelReply("x", "m", 1, (ReplyChoice((part,)),)))
    with pytest.raises(BackendFault):
        check_reply(PRIVATE, ModelReply("x", "m", 1, (ReplyChoice((), extra={"logprobs": {"token": KEY}}),)))


def test_other_answers_are_left_alone() -> None:
    reply = ModelReply("x", "m", 1, (ReplyChoice((Text("gpu-1.internal is the host of the research-team"),)),))
    assert check_reply(PRIVATE, reply) is reply
    check_whole(PRIVATE, b'{"a":"gpu-1.internal \\u00e9 \\/ research-team"}')
    check_whole(NOTHING, KEY.encode())


PATHS = ["raw", "events", "gate"]


def path_of(kind: str, private: PrivateData = PRIVATE) -> StreamPath:
    writer = ChatWriter(WriteOptions(request=REQUEST, created=1))
    if kind == "raw":
        return RelayPath(Relay(ChatProtocol(), 1 << 16, private), writer)
    if kind == "events":
        return Transcode(ChatReader(1 << 16), StageChain([]), writer, private)
    offer = OfferedTools((ToolSpec("f"),), ToolChoice(), True, sentinel.FORMAT, (ToolSpec("f"),))
    scan = ScanStage(offer, RouteOptions(), LimitsConfig(), lambda name: None)
    return FastPath(ChatReader(1 << 16), StageChain([scan]), writer, private, 1 << 16)


def given_out(path: StreamPath, reads: list[bytes]) -> bytes:
    """All that a client gets of it."""
    out = b"".join(path.feed(data) for data in reads)
    if not path.over:
        out += path.finish()
    if isinstance(path.last, Fault) and not out.endswith(b"data: [DONE]\n\n"):
        out += path.fail(path.last.error)
    return out


def text_of(frames: list[Any], *keys: str) -> str:
    deltas = [choice["delta"] for f in frames if isinstance(f, dict) for choice in f.get("choices", ())]
    return "".join(delta.get(key) or "" for delta in deltas for key in keys)


PIECES = st.text(string.ascii_letters + " é<", max_size=6)


@pytest.mark.parametrize("kind", PATHS)
@examples(0.5)
@given(
    before=st.lists(PIECES, max_size=4),
    after=st.lists(PIECES, max_size=3),
    pieces=st.lists(st.integers(1, len(KEY) - 1), max_size=8),
    reads=st.lists(st.integers(0, 10_000), max_size=6),
    key=st.sampled_from(["content", "reasoning_content"]),
    escaped=st.booleans(),
)
def test_law_a_secret_ends_the_stream_wherever_it_is_cut(
    kind: str, before: list[str], after: list[str], pieces: list[int], reads: list[int], key: str, escaped: bool
) -> None:
    """Over frames, over reads, in text or in reasoning: what comes before goes out, all that comes with it or later
    does not."""
    said = [KEY[a:b] for a, b in pairwise(sorted({0, *pieces, len(KEY)}))]
    texts = [*before, *said, *after]
    wire = b"".join(b"data: %b\n\n" % json.dumps(chunk({key: text}), ensure_ascii=escaped).encode() for text in texts)
    wire = frame(chunk({"role": "assistant", key: "Hi"})) + wire + frame(chunk({}, "stop")) + frame("[DONE]")
    path = path_of(kind)
    out = given_out(path, split(wire, reads))
    frames = read_frames(out)
    shown = text_of(frames, key)
    assert KEY not in shown
    assert KEY[: part_size(KEY)] not in shown
    assert shown.startswith("Hi")
    assert "".join(before).startswith(shown[2 : 2 + len("".join(before))].rstrip("<"))
    assert frames[-1] == "[DONE]"
    assert frames[-2]["error"]["code"] == "upstream_invalid_response"
    assert out == given_out(path_of(kind), [wire]), "the same for any split" if kind == "raw" else ""


@pytest.mark.parametrize("kind", PATHS)
@examples(0.5)
@given(
    texts=st.lists(PIECES | st.sampled_from([KEY[:11], KEY[4:20], KEY[-9:]]), max_size=8),
    reads=st.lists(st.integers(0, 9999), max_size=5),
)
def test_law_other_streams_are_the_same_as_without_secrets(kind: str, texts: list[str], reads: list[int]) -> None:
    """Read by read: nothing is held back for what might become a secret."""
    if part_size(KEY) <= len("".join(texts)) and PRIVATE.occurs_in("".join(texts).encode()):
        return
    wire = frame(chunk({"role": "assistant", "content": ""})) + b"".join(
        frame(chunk({"content": text})) for text in texts
    )
    wire += frame(chunk({}, "stop")) + frame("[DONE]")
    guarded, plain = path_of(kind), path_of(kind, NOTHING)
    for data in split(wire, reads):
        assert guarded.feed(data) == plain.feed(data)
    assert (guarded.over, guarded.has_sent) == (plain.over, plain.has_sent)
    if kind == "raw":
        assert given_out(path_of(kind), split(wire, reads)) == wire


def call_delta(**function: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": function}]}


DROPPED = (b'"id":"' + KEY.encode(), b'"system_fingerprint"', b'"x":')
"""Where reading has no place for it, after the first frame."""


@every("kind", PATHS)
@every(
    "frames",
    [
        [chunk({"content": "a"}, usage=None, id=KEY)],
        [chunk({"content": "a"}, system_fingerprint=KEY)],
        [chunk({"refusal": KEY[:16]}), chunk({"refusal": KEY[16:]})],
        [chunk(call_delta(name="f", arguments='{"a":"')), chunk(call_delta(arguments=KEY[:16])), chunk(call_delta(arguments=KEY[16:]))],
        [chunk({"content": "a", "x": [{"y": KEY}]})],
        [{"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [{"token": KEY}]}}]}],
        [chunk({"content": KEY[:16]}), {"id": "x", "choices": [{"index": 1, "delta": {"content": "other"}}]}, chunk({"content": KEY[16:]})],
        [chunk({"content": KEY[:16]}), chunk({"reasoning_content": "hm"}), chunk({"content": KEY[16:]})],
        [chunk({"content": KEY[:16]}), chunk({"content": KEY[16:]}, "stop")],
    ],
)  # fmt: skip
def test_wherever_it_stands(kind: str, frames: list[dict[str, Any]]) -> None:
    start = frame(chunk({"role": "assistant", "content": "Hi"}))
    wire = start + b"".join(map(frame, frames)) + frame(chunk({"content": "late"}, "stop")) + frame("[DONE]")
    for reads in ([wire], [wire[i : i + 7] for i in range(0, len(wire), 7)]):
        out = given_out(path_of(kind), reads)
        assert KEY.encode() not in out
        assert KEY[16:] not in text_of(read_frames(out), "content", "refusal")
        if kind == "raw" or not any(word in wire for word in DROPPED):
            assert b"late" not in out
            assert b'"upstream_invalid_response"' in out


def test_lines_may_end_otherwise_and_comments_are_read_too() -> None:
    for wire in (
        frame(chunk({"content": KEY[:16]})) + frame(chunk({"content": KEY[16:]})),
        b": " + KEY.encode() + b"\n\n",
        b"event: " + KEY.encode() + b"\ndata: " + json.dumps(chunk({"content": "a"})).encode() + b"\n\n",
        frame(chunk({"content": "a"})) + b"id: " + KEY.encode() + b"\n\n",
    ):
        for end in (b"\n", b"\r\n", b"\r"):
            relay = Relay(ChatProtocol(), 1 << 16, PRIVATE)
            out = relay.feed(wire.replace(b"\n", end) + frame(chunk({"content": "late"})))
            assert KEY[16:].encode() not in out
            assert b"late" not in out
            assert relay.fault is not None


@pytest.mark.parametrize("kind", PATHS)
@pytest.mark.parametrize("noise", [frame({"unknown": {"deep": [KEY]}}), b"event: %b\ndata: {}\n\n" % KEY.encode()])
def test_one_in_what_is_neither_answer_nor_error_is_left_out_with_it(kind: str, noise: bytes) -> None:
    wire = frame(chunk({"content": "a"})) + noise + frame(chunk({"content": "late"}, "stop")) + frame("[DONE]")
    out = given_out(path_of(kind), [wire])
    assert KEY.encode() not in out
    assert b"late" in out


def test_a_secret_behind_the_end_is_not_even_looked_at() -> None:
    wire = frame(chunk({"content": "a"}, "stop")) + frame("[DONE]")
    relay = Relay(ChatProtocol(), 1 << 16, PRIVATE)
    assert relay.feed(wire + frame(chunk({"content": KEY}))) == wire
    assert relay.fault is None
    assert relay.ended


def test_an_error_before_it_is_said_first() -> None:
    wire = frame(chunk({"content": "a"})) + frame({"error": {"message": "full"}}) + frame(chunk({"content": KEY}))
    relay = Relay(ChatProtocol(), 1 << 16, PRIVATE)
    relay.feed(wire)
    assert relay.fault is not None
    assert "full" in relay.fault.message


def test_many_texts_side_by_side_cost_little() -> None:
    leaks = LeakDetector(PRIVATE)
    for index in range(10 * MOST_FIELDS):
        wire = frame({"type": "response.output_text.delta", "output_index": index, "delta": KEY[:16]})
        assert leaks.frames(wire) == wire
    assert len(leaks._fields) == MOST_FIELDS
    assert leaks.frames(frame({"type": "response.output_text.delta", "output_index": index, "delta": KEY[16:]})) == b""


def test_events_up_to_the_place() -> None:
    opened = Open(0, BlockKind.TEXT)
    events: list[Event] = [
        Start("x", "m", 1),
        opened,
        Delta(0, "a " + KEY[:16]),
        Delta(0, KEY[16:]),
        Close(0),
        Finish(),
    ]
    *shown, last = LeakDetector(PRIVATE).events(events)
    assert shown == events[:3]
    assert isinstance(last, Fault)
    harmless: list[Event] = [Start("x", "m", 1), opened, Delta(0, "a"), Close(0), Opaque("chat", {"a": 1}), Finish()]
    assert LeakDetector(PRIVATE).events(harmless) is harmless
