"""A relayed stream is judged by the rules of a converted one: the same errors, the same ends (R29.1)."""

from __future__ import annotations

import re

import orjson
from hypothesis import given

from tests.cases import every, examples
from tests.unit.test_relay import CUTS, DONE, GOLDEN, LAST, TEXT, relayed
from toolwire.events import Delta, Fault
from toolwire.fastparse import SseFramer
from toolwire.protocols.base import ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.proxied.protocol import ProxiedProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.testing import frame

JOINED = TEXT.rstrip() + b"\n" + LAST
JUDGED = {
    "an error as a text": TEXT + b'data: {"error": "no memory"}\n\n' + TEXT,
    "a detail": TEXT + b'data: {"detail": [{"msg": "no memory"}]}\n\n' + TEXT,
    "a list of errors": TEXT + b'data: {"errors": [{"message": "no memory"}]}\n\n' + TEXT,
    "a code": TEXT + b'data: {"error_code": 500, "error_msg": "no memory"}\n\n' + TEXT,
    "an escaped error": TEXT + b'data: {"\\u0065rror": {"message": "no memory"}}\n\n' + TEXT,
    "an error of another body": TEXT + b'event: error\ndata: {"why": "no memory"}\n\n' + TEXT,
    "an error that is no JSON": TEXT + b"event: error\ndata: no memory\n\n" + TEXT,
    "an error in a list": TEXT + b'data: [{"error": {"message": "no memory"}}]\n\n' + TEXT,
    "a text": TEXT + b'data: "no memory"\n\n' + TEXT,
    "an error without a blank line before it": TEXT.rstrip() + b'\ndata: {"error": "no memory"}\n\n' + TEXT,
    "no blank before the end": TEXT + DONE,
    "blanks behind the end": TEXT + LAST + b"data: [DONE]  \n\n",
    "a small end": TEXT + LAST + b"data: [done]\n\n" + TEXT,
    "a quoted end": TEXT + LAST + b'data: "[DONE]"\n\n' + TEXT,
    "a bare end": TEXT + b"data: DONE\n\n" + TEXT,
    "only a small end": b"data: [done]\n\n",
    "no blank line between two frames": TEXT + JOINED + DONE,
    "no blank line before the end": TEXT + LAST.rstrip() + b"\n" + DONE,
    "no blank lines": TEXT.rstrip() + b"\n" + LAST.rstrip() + b"\n" + DONE.rstrip(),
    "no blank lines, and CR": (JOINED + DONE).replace(b"\n", b"\r\n"),
    "a byte order mark, and no blank lines": b"\xef\xbb\xbf" + TEXT.rstrip() + b"\n" + JOINED + DONE,
    "ids in place of blank lines": (JOINED.replace(b"\ndata", b"\nid: 7\ndata") + DONE),
}


@every("stream", JUDGED)
@examples(0.3)
@given(cuts=CUTS)
def test_law_a_relayed_stream_ends_like_a_converted_one(stream: str, cuts: list[int]) -> None:
    """The client of a relayed stream reads what the gateway would have read (R29.1)."""
    data = JUDGED[stream]
    reader = ChatProtocol().reader(frame_bytes=4096)
    events = reader.feed(data) + reader.finish()
    out, relay = relayed(data, cuts)
    text = "".join(event.text for event in events if isinstance(event, Delta))
    if isinstance(last := events[-1], Fault):
        assert relay.fault is not None
        assert (relay.fault.code, relay.fault.message) == (last.error.code, last.error.message)
        assert not relay.ended
    else:
        assert (relay.fault, relay.ended) == (None, True)
        assert out.endswith((DONE, DONE.replace(b"\n", b"\r\n"), b"data: [DONE]  \n\n"))
    sent = [data for _, data in SseFramer().feed(out)]
    shown = [orjson.loads(one)["choices"][0]["delta"].get("content", "") for one in sent if one.strip() != b"[DONE]"]
    assert "".join(shown) == text


@every("protocol", [MessagesProtocol(), ResponsesProtocol()])
@every("end", [b"data: [DONE]\n\n", b"data: [done]\n\n"])
def test_another_protocols_end_is_replaced_if_the_answer_is_complete(protocol: ServerSide, end: bytes) -> None:
    golden = GOLDEN / f"{protocol.name}-all-kinds.sse"
    complete = golden.read_bytes().strip()
    stopped = complete[: complete.rindex(b"\n\n") + 2]  # without its last frame
    out, relay = relayed(stopped + end, [], protocol)
    if protocol.name == "messages":
        assert (out.strip(), relay.fault, relay.ended) == (complete, None, True)
    else:
        assert relay.fault is not None
        assert relay.fault.code == "upstream_disconnected"


@given(cuts=CUTS)
def test_names_of_events_are_added_where_strict_clients_need_them(cuts: list[int]) -> None:
    golden = (GOLDEN / "messages-all-kinds.sse").read_bytes()
    bare = re.sub(rb"^event: .*\n", b"", golden, flags=re.MULTILINE)
    out, relay = relayed(bare, cuts, MessagesProtocol())
    assert (out, relay.fault, relay.ended) == (golden, None, True)


def test_a_passed_path_may_send_any_json() -> None:
    stream = b'data: [1]\n\ndata: "done"\n\ndata: {"x": [1]}\n\n' + DONE
    out, relay = relayed(stream, [], ProxiedProtocol("/v1/numbers"))
    assert (out, relay.fault, relay.ended) == (stream, None, True)


def test_a_response_that_failed_without_an_error_is_a_fault() -> None:
    failed = frame({"type": "response.failed", "response": {"id": "a", "status": "failed", "output": []}})
    out, relay = relayed(failed, [], ResponsesProtocol())
    assert relay.fault is not None
    assert out == b""


def test_a_response_with_nothing_but_a_call_without_a_name_is_a_fault() -> None:
    """R29.2: such a call does not leave, relayed or converted. Beside anything else the bytes pass."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "", "arguments": "{}"}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
    for output, fault in (([call], "upstream_invalid_response"), ([text, call], None)):
        response = {"id": "a", "status": "completed", "output": output}
        stream = frame({"type": "response.completed", "response": response})
        reader = ResponsesProtocol().reader(frame_bytes=4096)
        last = [*reader.feed(stream), *reader.finish()][-1]
        assert (last.error.code if isinstance(last, Fault) else None) == fault
        out, relay = relayed(stream, [], ResponsesProtocol())
        assert (relay.fault and relay.fault.code, out) == (fault, b"" if fault else stream)
