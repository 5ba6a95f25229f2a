"""Streams that are passed on unread: the same bytes for any split, and never half a frame before an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.strategies import split
from toolwire.pipeline.paths.relay import Relay
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.testing import chunk, frame

GOLDEN = Path(__file__).parents[1] / "golden"
TEXT = frame(chunk({"content": 'an "error" in words, [DONE], data: [DONE]'}))
LAST = frame(chunk({}, "stop"))
DONE = b"data: [DONE]\n\n"
ERROR = frame({"error": {"message": "no memory at http://10.0.0.1:8000", "code": None}})
COMMENT = b": hello\n\n"
CUTS = st.lists(st.integers(0, 100_000), max_size=8)


def relayed(
    data: bytes, cuts: list[int] | None = None, protocol: ServerSide | None = None, choices: int = 1
) -> tuple[bytes, Relay]:
    """What goes out of these bytes, read in these pieces, the end included."""
    relay = Relay(protocol or ChatProtocol(), frame_bytes=4096 if protocol is None else 1 << 16, choices=choices)
    out = b""
    for piece in split(data, cuts or []):
        out += relay.feed(piece)
        if relay.fault is not None:
            return out, relay
    return out + relay.finish(), relay


def code_of(relay: Relay) -> str:
    """Of its fault."""
    assert relay.fault is not None
    return relay.fault.code


STREAMS = [
    COMMENT + TEXT + LAST + DONE,
    (TEXT + LAST + DONE).replace(b"\n", b"\r\n"),
    (TEXT + LAST + DONE).replace(b"\n\n", b"\n\r\n"),
    (TEXT + LAST + DONE).replace(b"\n", b"\r"),
    b'data: {"choices":[],"strange":  1.0}\n\n' + DONE,
    TEXT + LAST + b"data:  [DONE] \n\n",
    TEXT + LAST + b"id: 7\ndata:[DONE]\n\n",
]


@given(stream=st.sampled_from(STREAMS), cuts=CUTS)
def test_bytes_pass_unchanged_for_any_split(stream: bytes, cuts: list[int]) -> None:
    out, relay = relayed(stream, cuts)
    assert (out, relay.fault, relay.ended, relay.has_sent) == (stream, None, True, True)


@given(cuts=CUTS)
def test_lf_and_cr_is_a_blank_line(cuts: list[int]) -> None:
    """At the end of the stream it becomes LF and CRLF."""
    stream = (TEXT + LAST + DONE).replace(b"\n\n", b"\n\r")
    out, relay = relayed(stream, cuts)
    assert (out, relay.fault, relay.ended, relay.has_sent) == (stream + b"\n", None, True, True)
    out, relay = relayed((TEXT + ERROR + TEXT).replace(b"\n\n", b"\n\r"), cuts)
    assert (out, code_of(relay)) == (TEXT.replace(b"\n\n", b"\n\r"), "upstream_error")


def test_a_frame_goes_out_as_soon_as_it_is_whole() -> None:
    relay = Relay(ChatProtocol(), frame_bytes=4096)
    assert relay.feed(COMMENT) == COMMENT
    assert not relay.has_sent
    assert relay.feed(TEXT + LAST[:9]) == TEXT
    assert relay.has_sent
    assert relay.feed(LAST[9:-1]) == b""
    assert relay.feed(LAST[-1:]) == LAST


def test_a_frame_between_lf_and_cr_goes_out_with_the_next_byte() -> None:
    """Before that, LF and CR may be the beginning of LF and CRLF."""
    relay = Relay(ChatProtocol(), frame_bytes=4096)
    text = TEXT.replace(b"\n\n", b"\n\r")
    assert relay.feed(text) == b""
    assert relay.feed(text[:1]) == text
    assert relay.feed(text[1:] + ERROR) == text
    assert code_of(relay) == "upstream_error"


@every(
    "before", [COMMENT + TEXT, (COMMENT + TEXT).replace(b"\n", b"\r\n"), TEXT + frame({"choices": [], "usage": None})]
)
@given(cuts=CUTS)
def test_a_finish_reason_that_never_came_is_added(before: bytes, cuts: list[int]) -> None:
    """Before `[DONE]` only: strict clients fail without it. Without both the stream broke off."""
    out, relay = relayed(before + DONE, cuts)
    assert (out, relay.fault, relay.ended) == (before + LAST + DONE, None, True)
    assert code_of(relayed(before, cuts)[1]) == "upstream_disconnected"
    far = before + LAST + TEXT * 20 + DONE
    assert relayed(far, cuts)[0] == far
    calls = before + frame(chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}))
    assert relayed(calls + DONE, cuts)[0] == calls + frame(chunk({}, "tool_calls")) + DONE
    counted = before + frame({**chunk({"content": "x"}), "usage": {"prompt_tokens": 9}})
    assert relayed(counted + DONE, cuts)[0] == counted + LAST + DONE
    long = before + frame(chunk({"content": "x" * 2000}))
    assert relayed(long + DONE, cuts)[0] == long + LAST + DONE


@every("ended", [(), (0,), (1,), (2, 0), (0, 1, 2)])
@given(cuts=CUTS)
def test_a_finish_reason_is_added_for_each_of_several_answers(ended: tuple[int, ...], cuts: list[int]) -> None:
    def of(index: int, *said: Any) -> bytes:
        return frame({**chunk(*said), "choices": [{**chunk(*said)["choices"][0], "index": index}]})

    stream = b"".join([of(index, {"content": "a"}) for index in range(3)] + [of(at, {}, "stop") for at in ended])
    added = b"".join(of(index, {}, "stop") for index in range(3) if index not in ended)
    out, relay = relayed(stream + DONE, cuts, choices=3)
    assert (out, relay.fault) == (stream + added + DONE, None)
    # Without `[DONE]` it broke off, unless all have one.
    assert (relayed(stream, cuts, choices=3)[1].fault is None) == (not added)


def test_an_empty_finish_reason_ends_nothing() -> None:
    """Some servers have it in every chunk."""
    text = frame(chunk({"content": "a"}, ""))
    assert code_of(relayed(text)[1]) == "upstream_disconnected"
    assert relayed(text + DONE)[0] == text + LAST + DONE


def test_an_empty_stop_reason_ends_nothing() -> None:
    start = frame({"type": "message_start", "message": {"role": "assistant", "stop_reason": ""}})
    text = frame({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}})
    assert code_of(relayed(start + text, protocol=MessagesProtocol())[1]) == "upstream_disconnected"


@every("before", [b"\xef\xbb\xbf", b"\n", b"\r\n"])
def test_the_name_of_an_event_stands_right_before_its_data(before: bytes) -> None:
    ping = frame({"type": "ping"})
    assert relayed(before + ping, protocol=MessagesProtocol())[0] == b"event: ping\n" + ping


def test_an_answer_without_an_index_ends_once() -> None:
    choices = [{"delta": {"content": "a"}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}]
    stream = b"".join(frame({**chunk({}), "choices": [choice]}) for choice in choices)
    assert relayed(stream + DONE, choices=2)[0] == stream + DONE


@every("end", [b"data: [DONE]", b"data: [DONE]\n", b""])
def test_a_missing_end_is_added(end: bytes) -> None:
    out, relay = relayed(TEXT + LAST + end)
    assert (out.replace(b"\n\n\n", b"\n\n"), relay.fault) == (TEXT + LAST + DONE, None)


def test_a_last_frame_without_its_blank_line_counts_if_it_is_whole() -> None:
    assert relayed(TEXT + LAST.rstrip())[0] == TEXT + LAST + DONE
    out, relay = relayed(TEXT + LAST[:-20])
    assert (out, code_of(relay)) == (TEXT, "upstream_disconnected")


@examples(0.5)
@given(name=st.sampled_from(["all-kinds", "incomplete"]), cuts=CUTS)
def test_the_protocol_says_what_an_end_is(name: str, cuts: list[int]) -> None:
    stream = (GOLDEN / f"responses-{name}.sse").read_bytes()
    out, relay = relayed(stream + frame("[DONE]"), cuts, ResponsesProtocol())
    assert (out, relay.fault, relay.ended, relay.has_sent) == (stream, None, True, True)
    assert code_of(relayed(stream[:-9], cuts, ResponsesProtocol())[1]) == "upstream_disconnected"


@given(cuts=CUTS)
def test_a_stream_that_breaks_off_is_a_fault_after_its_last_whole_frame(cuts: list[int]) -> None:
    out, relay = relayed(TEXT + TEXT[:50], cuts)
    assert (out, relay.ended, code_of(relay)) == (TEXT, False, "upstream_disconnected")


@given(error=st.sampled_from([ERROR, b'event: error\ndata: {"message":"no memory"}\n\n']), cuts=CUTS)
def test_an_error_ends_the_stream_and_shows_no_address(error: bytes, cuts: list[int]) -> None:
    out, relay = relayed(TEXT + error + TEXT, cuts)
    assert (out, code_of(relay)) == (TEXT, "upstream_error")
    assert "no memory" in str(relay.fault)
    assert "10.0.0.1" not in str(relay.fault)


BEHIND = [TEXT, COMMENT, DONE, ERROR, b"no frame", b"data: {no json\n\n", b"data: " + b"x" * 5000]


@given(more=st.sampled_from(BEHIND), end=st.sampled_from(["\n", "\r\n", "\r"]), cuts=CUTS)
def test_nothing_passes_after_the_end(end: str, more: bytes, cuts: list[int]) -> None:
    stream = (COMMENT + TEXT + LAST + DONE).replace(b"\n", end.encode())
    out, relay = relayed(stream + more, cuts)
    assert (out, relay.fault, relay.ended) == (stream, None, True)


@every("frame", [frame(chunk({"content": "data: [DONE]"})), b": [DONE]\n\n", b"event: [DONE]\n\n"])
def test_what_only_looks_like_the_end_is_none(frame: bytes) -> None:
    assert relayed(TEXT + frame + LAST + DONE)[0] == TEXT + frame + LAST + DONE


def test_an_error_before_anything_was_said_is_all_that_is_said() -> None:
    role = frame(chunk({"role": "assistant", "content": ""}))
    out, relay = relayed(COMMENT + role + ERROR)
    assert (out, relay.has_sent) == (b"", False)
    assert relay.fault is not None


@every("key", ["error", "detail"])
@every("value", [None, "", {}, [], False])
def test_an_empty_error_is_none_and_costs_no_reader(key: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers have it in every chunk."""
    stream = frame({**chunk({"content": "a"}), key: value}) + LAST + DONE
    with_blanks = stream.replace(b'":', b'": ')
    monkeypatch.setattr(Relay, "_shown_object", None)
    assert relayed(stream)[0] == stream
    assert relayed(with_blanks)[0] == with_blanks


def test_a_frame_beyond_the_limit_is_a_fault() -> None:
    out, relay = relayed(TEXT + b"data: " + b"x" * 5000)
    assert (out, code_of(relay)) == (TEXT, "upstream_invalid_response")
