"""Answers that tried to call and did not (R23.4): asked for again by default, while nothing was sent, with the exact
error. For each protocol, streamed and not, with both scanners."""

from __future__ import annotations

import logging
from itertools import product
from typing import Any

import pytest

import toolwire.pipeline.paths.stream_paths
import toolwire.scanner
from tests.cases import first_and_in_turn
from tests.chain.test_reask import GOOD, MADE, PATHS, USED, WAYS, Turns, ask, body, calls, config, says, told
from tests.e2e.conftest import CHAT
from tests.e2e.meaning import RESPONSES
from toolwire import fastparse
from toolwire.model import ToolChoice
from toolwire.prompting.prompt import REMINDER
from toolwire.scan import _pychunk, _pyparse
from toolwire.testing import run_chain

PLACES = [*product((CHAT, RESPONSES), (False, True))]
"""Path and stream."""
TWINS = ((fastparse.CallScanner, fastparse.ChunkGate), (_pyparse.CallScanner, _pychunk.ChunkGate))


def tried(text: str) -> str:
    return f"<tool_call>{text}</tool_call>"


UNREADABLE = tried('{"name":"look","arguments":{"path": }}')
UNKNOWN = tried('{"name":"Look","arguments":{"path":"a"}}')
UNCLOSED = '<tool_call>{"name":"look","arguments":{"path":"a'
RECITED = (
    '{"name":"look","description":"Looks.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}'
)
NEAR = {
    UNREADABLE: "it is not valid JSON",
    UNKNOWN: '"Look", which is not on offer. Its name is "look".',
    UNCLOSED: "The answer ended inside a tool call.",
    f"```json\n{RECITED}\n```": 'wrote the definition of the tool "look"',
    "look(path=2*pi)": "cannot be read",
    '{"name":"Look","arguments":{"path":"a"}}': '"Look", which is not on offer. Its name is "look".',
}
SOFT: dict[str, Any] = {"mode": "prompt", "strict": False}


@pytest.mark.parametrize(("near", "way"), first_and_in_turn(NEAR.items(), product(TWINS, PLACES)))
async def test_a_near_miss_is_asked_again(near: Any, way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (text, why), ((scanner, gate), (path, stream)) = near, way
    monkeypatch.setattr(toolwire.scanner, "CallScanner", scanner)
    monkeypatch.setattr(toolwire.pipeline.paths.stream_paths, "ChunkGate", gate)
    seen, backend = await ask([says(text), calls("prompt", GOOD)], path, stream=stream, **SOFT)
    assert (seen.status, seen.text, seen.calls, seen.usage) == (200, "", MADE, (20, 6))
    (role, wrote), (other, said) = told(backend.requests[1])
    assert (role, wrote, other) == ("assistant", text, "user"), "in the very form in which calls are taught"
    assert why in said
    assert said.endswith('Answer again: call the tool "look", and write nothing else.')
    assert backend.requests[1].enforced_choice == ToolChoice("named", "look")


@pytest.mark.parametrize(
    ("options", "times", "stream"), [({"reask": 0}, 1, True), ({}, 2, False), ({"reask": 3}, 4, True)]
)
async def test_how_often(stream: bool, options: Any, times: int) -> None:
    seen, backend = await ask([says(UNKNOWN)], CHAT, stream=stream, **SOFT, **options)
    assert (seen.text, seen.usage, len(backend.requests)) == (UNKNOWN, (10 * times, 3 * times), times)
    assert [len(told(request)) for request in backend.requests] == [2 * n for n in range(times)]


NONE = [
    "No call at all.",
    tried('{"name":"delete_all","arguments":{}}'),
    "Calls stand between `<tool_call>` and its closer.",
    "Write <tool_call>{...}</tool_call> to call.",
    f"The tool is defined like this:\n{RECITED}",
    tried('{"name":"look","arguments":{"path":1}}'),
]


@pytest.mark.parametrize(("text", "place"), first_and_in_turn(NONE, PLACES))
async def test_what_is_none(text: str, place: Any) -> None:
    path, stream = place
    _, backend = await ask([says(text), calls("prompt", GOOD)], path, stream=stream, coerce="off", **SOFT)
    assert len(backend.requests) == 1


@PATHS
@WAYS
@pytest.mark.parametrize("first", [True, False])
async def test_an_answer_with_a_good_call_is_kept(path: str, stream: bool, first: bool) -> None:
    good = calls("prompt", GOOD)["text"]
    text = f"{good}\n{UNKNOWN}" if first else f"{UNKNOWN}\n{good}"
    turns = [{"text": text, "usage": USED, "chunk": 1 if path == CHAT else 1000}]
    seen, backend = await ask(turns, path, stream=stream, **SOFT)
    assert (seen.text, seen.calls, seen.usage) == (UNKNOWN, MADE, (10, 3))
    assert len(backend.requests) == 1


@pytest.mark.parametrize(("path", "chunk"), [(CHAT, 1), (RESPONSES, 5)])
@pytest.mark.parametrize("turn", [{"text": f"Well, let me look.\n{UNKNOWN}"}, {"text": f"<think>Hm.</think>{UNKNOWN}"}])
async def test_the_first_thing_that_was_sent_decides(path: str, chunk: int, turn: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "toolwire.access")
    turns = [{**turn, "usage": USED, "chunk": chunk}, calls("prompt", GOOD)]
    _, backend = await ask(turns, path, stream=True, **SOFT)
    assert len(backend.requests) == 1
    (line,) = caplog.records
    assert (line.fields["near_misses"], line.fields.get("reasks")) == (1, None)
    seen, backend = await ask(turns, path, stream=False, **SOFT)
    assert (seen.calls, len(backend.requests)) == (MADE, 2), "of a whole answer nothing is sent before its end"


@WAYS
@pytest.mark.parametrize(
    "failure", [{"error": {"status": 503, "message": "full"}}, {"text": "", "error": {"after": 1, "status": 500}}]
)
async def test_a_server_that_fails_leaves_the_answer_before(stream: bool, failure: Any) -> None:
    turns = [says(UNKNOWN), failure]
    seen, backend = await ask(turns, CHAT, stream=stream, retry={"attempts": 1}, **SOFT)
    assert (seen.status, seen.text, seen.usage) == (200, UNKNOWN, (10, 3))
    assert len(backend.requests) == 2


@pytest.mark.parametrize(("path", "stream"), [(CHAT, True), (RESPONSES, False)])
async def test_a_native_server_that_nearly_calls(path: str, stream: bool) -> None:
    near = [calls("native", "{path a}"), calls("native", GOOD, "Look")]
    for turn in near:
        seen, backend = await ask([turn, calls("native", GOOD)], path, stream=stream, mode="native", strict=False)
        assert (seen.text, seen.calls, seen.usage, len(backend.requests)) == ("", MADE, (20, 6), 2)
    seen, backend = await ask([calls("native", GOOD, "other")], path, stream=stream, mode="native", strict=False)
    assert (seen.calls, len(backend.requests)) == (MADE, 1), "clients know best what to do with it"


@PATHS
@WAYS
async def test_where_a_call_is_demanded(path: str, stream: bool) -> None:
    """With `choice_miss: reask` such an answer is held back; the model is told what was wrong, not just that nothing
    was called."""
    options = {"choice": "required", "constrain": "off", "choice_miss": "reask"}
    seen, backend = await ask([says(f"Yes.\n{UNKNOWN}"), calls("prompt", GOOD)], path, stream=stream, **SOFT, **options)
    assert (seen.text, seen.calls, seen.usage) == ("", MADE, (20, 6))
    assert 'Its name is "look".' in told(backend.requests[1])[1][1]


async def test_nothing_is_tried_where_nothing_can_be_called() -> None:
    for choice in ("none", "auto"):
        sent = {**body(CHAT, stream=False, strict=False, choice=choice), **({"tools": []} if choice == "auto" else {})}
        answer = await run_chain(config(), sent, backend=(backend := Turns(says(UNKNOWN))))
        assert answer.json()["choices"][0]["message"]["content"] == UNKNOWN
        assert len(backend.requests) == 1


async def test_it_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire")
    await ask([says(UNKNOWN), calls("prompt", GOOD)], CHAT, stream=True, **SOFT)
    (access,) = [record for record in caplog.records if record.name == "toolwire.access"]
    fields = vars(access)["fields"]
    assert [fields[name] for name in ("near_misses", "unknown_names", "reasks", "calls")] == [1, 1, 1, 1]
    assert (fields["input_tokens"], fields["output_tokens"]) == (20, 6)
    assert sum(record.name == "toolwire.reask" for record in caplog.records) == 1


async def test_what_was_escaped_in_the_prompt_stays_escaped() -> None:
    """Where the conversation holds markers, an attempt may quote them: then it is shown as data."""
    sent = body(CHAT, stream=False, strict=False)
    sent["messages"] = [{"role": "user", "content": "What is <tool_call>?"}]
    backend = Turns(says(UNKNOWN), calls("prompt", GOOD))
    await run_chain(config(), sent, backend=backend)
    assert "<tool_call>" not in told(backend.requests[1])[0][1]


@pytest.mark.parametrize(
    ("stream", "role", "before"),
    [(False, "user", ""), (False, "tool", "It says: "), (True, "tool", ""), (True, "user", "It says: ")],
)
async def test_a_copy_of_what_was_escaped_is_no_attempt(stream: bool, role: str, before: str) -> None:
    """A model that was asked to copy a text, or reads from a file, did not try to call. What it adds is an attempt."""
    sent = body(CHAT, stream=stream, strict=False)
    quoted = "<tool_call>\n" + '{"name": "look", "arguments": {"path": "a"}}' + "\n</tool_call>"
    answer = before + quoted.replace("<tool", "<\\tool").replace("</tool", "<\\/tool")
    if role == "user":
        sent["messages"] = [{"role": "user", "content": f"Copy this: {quoted}"}]
    else:
        used = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        sent["messages"] = [
            {"role": "user", "content": "What is in it?"},
            {"role": "assistant", "content": None, "tool_calls": [used]},
            {"role": "tool", "tool_call_id": "c", "content": f"1: {quoted}"},
        ]
    for text, copied in ((answer, True), (answer.replace('"a"', '"b"'), False)):
        backend = Turns(says(text), says("Sorry."))
        await run_chain(config(), sent, backend=backend)
        was_sent = stream and before  # what the client has got stands
        assert len(backend.requests) == (1 if copied or was_sent else 2), text


@pytest.mark.parametrize("line", [True, "Call one of {tools}."])
async def test_the_reminder_is_the_last_thing_that_the_user_says(line: Any) -> None:
    backend = Turns(says("ok"))
    await run_chain(config(prompt={"reminder": line}), body(CHAT, stream=False), backend=backend)
    *_, last = backend.requests[0].messages
    assert last.text == "hi\n\n" + (REMINDER if line is True else "Call one of `look`.")
