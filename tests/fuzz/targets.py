"""What is fuzzed: functions that take any bytes and raise only if a law is broken.

`test_targets.py` runs each for a moment with seeded bytes; `python -m tests.fuzz.run` runs one for as long as one
likes, guided by coverage where `atheris` is installed.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from random import Random
from typing import Any, Final

import jsonschema
import orjson

from tests.chunks import CALLS, CHOICES, DELTAS, WHOLE
from tests.fuzz.tape import Tape, cut, dump
from tests.options import route_options
from tests.parse import oracle
from tests.parse.oracle import Settings, valid
from tests.parse.policies import WordPolicy
from tests.parse.texts import FIELDS, GRAMMARS, PIECES, literals_of, text_of
from tests.unit.test_stream_paths import OPTIONS as LANE_OPTIONS
from tests.unit.test_stream_paths import masked, pair, told
from toolwire import fastparse
from toolwire.config import LimitsConfig, ReasoningConfig
from toolwire.errors import CODES, ClientFault, GatewayError
from toolwire.events import Event, Fault, Finish, Start
from toolwire.formats.base import ToolFormat
from toolwire.ingress.bodies import parse_body
from toolwire.pipeline.paths.relay import Relay
from toolwire.protocols.base import ClientSide, ServerSide
from toolwire.protocols.chat.protocol import ChatProtocol
from toolwire.protocols.completions.protocol import CompletionsProtocol
from toolwire.protocols.messages.protocol import MessagesProtocol
from toolwire.protocols.responses.protocol import ResponsesProtocol
from toolwire.protocols.shared import wire
from toolwire.registry import registries
from toolwire.repair.relaxed_json import parses, repair_json
from toolwire.scan import _pyparse
from toolwire.scan._grammar import Grammar
from toolwire.scanner import open_scanner
from toolwire.schemas.schema import SchemaProblem, compile_schema
from toolwire.stream_grammar import check, normalise

TWINS: Final = [fastparse, _pyparse]
"""The one in use (the compiled one, where it was built) and the Python one."""

FRAME_ENDS: Final = re.compile(rb"(?<=\n\n)|(?<=\n\r\n)|(?<=\r\r)")
IDS: Final = re.compile(r"call_[0-9a-f]{32}")
REASONING: Final[list[tuple[tuple[str, str], ...]]] = [
    (),
    (("<think>", "</think>"),),
    (("<think>", "</think>"), ("[THINK]", "[/THINK]")),
]


# --- the scanner ----------------------------------------------------------------------------------------------------


@cache
def _pieces(name: str) -> list[str]:
    fields = [text for texts in FIELDS.values() for text in texts]
    return (literals_of(GRAMMARS[name]) * 8 + PIECES + fields)[:240]


def _text(tape: Tape, grammar: Grammar, pieces: list[str]) -> str:
    if tape.flag():
        return text_of(grammar, Random(int.from_bytes(tape.raw(4)))) + tape.text(pieces)
    return tape.text(pieces)


def scanner(data: bytes) -> None:
    """Both twins, step by step alike, and what the oracle reads, for any split."""
    tape = Tape(data)
    name = tape.pick(list(GRAMMARS))
    grammar, strict, truncated, seed = GRAMMARS[name], tape.flag(), tape.flag(), tape.byte()
    settings = Settings(
        tape.pick([1 << 20, 1 << 20, 90, 40, 20]), tape.flag(), tape.pick(REASONING), tape.flag(), tape.flag()
    )
    text = _text(tape, grammar, _pieces(name))
    pieces = cut(valid(text).encode() if tape.flag() else text, seed)
    policy = WordPolicy(strict)
    expected = oracle.parse(text, grammar, policy, settings, truncated)
    seen: list[Any] = []
    for module in TWINS:
        own = WordPolicy(strict)
        found = module.CallScanner(grammar, own, **asdict(settings))
        steps = [(found.feed(piece), found.state, found.held, found.next_block) for piece in pieces]
        steps.append((found.finish(truncated), found.state, found.held, found.next_block))
        events = [event for step in steps for event in step[0]]
        assert normalise(events) == expected, (module.__name__, normalise(events), expected)
        assert own.log == policy.log
        stream = [Start("", "", 0), *events]
        check(stream if events and isinstance(events[-1], Fault) else [*stream, Finish()])
        seen.append(steps)
    assert seen[0] == seen[1]


@cache
def _formats() -> list[ToolFormat]:
    names = registries().formats.names()
    return [registries().formats.get(name) for name in sorted(names)]


@cache
def _format_pieces(at: int) -> list[str]:
    found = literals_of(_formats()[at].grammar)
    fields = [text for texts in FIELDS.values() for text in texts]
    calls = [
        '{"name":"f","arguments":{"a":1}}',
        '{"name": "g", "arguments": "{\\"b\\": [1, 2]}"}',
        '"f"',
        "f",
        "g",
        "a",
    ]
    return (found * 6 + calls * 4 + CALLS + PIECES + fields)[:240]


def formats(data: bytes) -> None:
    """A format of the product with the product's policy: twins alike in every step, and any split gives the same."""
    tape = Tape(data)
    at = tape.byte() % len(_formats())
    options = route_options(
        trim=tape.pick(["edge", "none"]),
        unclosed=tape.pick(["repair", "text", "error"]),
        repair=tape.pick(["safe", "off"]),
        strict_failure=tape.pick(["error", "assistant_message"]),
        argument_streaming=tape.pick(["buffered", 0, 40]),
        dedupe_calls=tape.flag(),
        reasoning=ReasoningConfig(preopened=tape.flag(), scan_calls=tape.flag()),
    )
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "array"}}}
    strict = tape.flag()
    tools = [{"type": "function", "function": {"name": n, "parameters": schema, "strict": strict}} for n in ("f", "g")]
    parallel, truncated, seed = tape.flag(), tape.flag(), tape.byte()
    limits = LimitsConfig(block_bytes=tape.pick([1 << 20, 60]), calls_per_response=tape.pick([64, 2]))
    format = _formats()[at]
    text = _text(tape, format.grammar, _format_pieces(at))
    whole = valid(text).encode()

    def scan(module: Any, pieces: list[bytes]) -> tuple[list[Any], list[Event]]:
        counted: list[str] = []
        found = open_scanner(
            format, tools, parallel=parallel, options=options, limits=limits, count=counted.append,
            scanner=module.CallScanner,
        )  # fmt: skip
        steps = [(found.feed(piece), found.state, found.held, found.next_block) for piece in pieces]
        steps.append((found.finish(truncated), found.state, found.held, found.next_block))
        return [steps, counted], [event for step in steps for event in step[0]]

    results = [scan(module, cut(whole, seed)) for module in TWINS]
    assert IDS.sub("call_", repr(results[0][0])) == IDS.sub("call_", repr(results[1][0]))
    events = results[0][1]
    stream = [Start("", "", 0), *events]
    check(stream if events and isinstance(events[-1], Fault) else [*stream, Finish()])
    _, at_once = scan(TWINS[0], [whole])
    assert _shown(events) == _shown(at_once)


def _shown(events: list[Event]) -> str:
    return IDS.sub("call_", repr(normalise(events)))


# --- streams --------------------------------------------------------------------------------------------------------


def _event(payload: Any) -> bytes:
    return b"data: " + (payload if isinstance(payload, bytes) else orjson.dumps(payload)) + b"\n\n"


def _chunk(delta: Any) -> dict[str, Any]:
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}  # fmt: skip


WIRE: Final[list[bytes]] = [
    *[_event(_chunk({"content": text})) for text in ("Hello", " it", " 日本", "\n\n", " a < b", "<tool_call>", "\\", "")],
    *[_event(_chunk({"content": text})) for call in CALLS for text in (call, call[:9], call[9:])],
    *[_event(_chunk(delta)) for delta in DELTAS],
    *[_event({**_chunk({}), "choices": [choice]}) for choice in CHOICES],
    *[_event(payload) for payload in WHOLE],
    *[_event({"id": "x", "choices": [{"index": 0, "text": "a", "finish_reason": end}]}) for end in (None, "stop")],
    *[_event({**_chunk({}), "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})],
    *[b"data: ", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b": c\n\n", b"event: error\n", b"\xef\xbb\xbf", b"data: [DONE]\n\n"],
    *[b'{"choices":[{"index":0,"delta":{"content":"', b'"}}]}', b"\\u003c", b"\\ud83d", b"\\", b'"', b"}", b"]", b","],
    *[b'"content":', b'"reasoning_content":"r"', b'"tool_calls":', b'"delta":', b"null", b"1e9", b"\xf0\x9f\x9a\x80"],
]  # fmt: skip


def stream_paths(data: bytes) -> None:
    """The fast path gives byte for byte what transcoding gives, in both protocols."""
    tape = Tape(data)
    style = tape.pick(["sentinel", "hermes", "bare_json", "qwen3_coder", "harmony", "pythonic", "deepseek_v31", "auto"])
    from tests.unit.test_stream_paths import FORMATS

    style = style if style in FORMATS else "sentinel"
    (plain, *plain_seen), (gated, *gate_seen) = pair(
        tape.pick(list(LANE_OPTIONS)),
        style,
        tape.pick(["chat", "responses"]),
        parallel=tape.flag(),
        scanned=tape.flag(),
    )
    beat, seed = tape.byte(), tape.byte()
    for number, piece in enumerate(cut(tape.wire(WIRE), seed)):
        assert masked(gated.feed(piece)) == masked(plain.feed(piece))
        assert (gated.has_sent, gated.over) == (plain.has_sent, plain.over)
        if number == beat:
            assert masked(gated.keepalive()) == masked(plain.keepalive())
    if not plain.over:
        assert masked(gated.finish()) == masked(plain.finish())
    assert told(gate_seen[1]) == told(plain_seen[1])


def _read(protocol: ServerSide, wire: bytes, seed: int, bound: int) -> None:
    """Whole and cut, a stream gives the same events, by their grammar. `bound`: bytes of a frame."""
    found = []
    for pieces in (cut(wire, seed), [wire]):
        reader = protocol.reader(frame_bytes=bound)
        events = [event for piece in pieces for event in reader.feed(piece)]
        events += reader.finish()
        assert isinstance(events[-1], Finish | Fault)
        if isinstance(events[-1], Finish) or any(isinstance(event, Start) for event in events):
            check(events)
        found.append(_shown(events))
    assert found[0] == found[1]


def readers(data: bytes) -> None:
    """Readers of model servers' streams: any bytes give a stream by the grammar of events, the same for any split."""
    tape = Tape(data)
    protocol: ServerSide = tape.pick([CHAT_PROTOCOL, COMPLETIONS_PROTOCOL])
    seed, bound = tape.byte(), tape.pick([1 << 20, 400])
    wire = tape.wire(WIRE)
    _read(protocol, wire, seed, bound)


def relay(data: bytes) -> None:
    """A relay of any bytes invents nothing: its frames are the server's, in their order, some left out (R29.1)."""
    tape = Tape(data)
    seed, stream = tape.byte(), tape.wire(WIRE)
    relayed = Relay(CHAT_PROTOCOL, frame_bytes=2000)
    out = b"".join(relayed.feed(piece) for piece in cut(stream, seed))
    said = iter(FRAME_ENDS.split(stream))
    for frame in FRAME_ENDS.split(out):
        assert not frame.strip() or b'"delta":{}' in frame or frame in said, frame
    if relayed.fault is None:
        relayed.finish()
    assert relayed.ended or relayed.fault is not None or b"finish_reason" in out


# --- requests -------------------------------------------------------------------------------------------------------

CHAT_PROTOCOL, RESPONSES_PROTOCOL, COMPLETIONS_PROTOCOL = ChatProtocol(), ResponsesProtocol(), CompletionsProtocol()
MESSAGES_PROTOCOL: Final = MessagesProtocol()
CALL: Final = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {}}}}}
CHAT: Final[list[dict[str, Any]]] = [
    {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    {
        "model": "m", "stream": True, "stream_options": {"include_usage": True}, "tools": [TOOL], "n": 1, "seed": 1,
        "tool_choice": {"type": "function", "function": {"name": "f"}}, "temperature": 0.5, "stop": ["a"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}},
        "messages": [
            {"role": "system", "content": "x"}, {"role": "user", "content": [{"type": "text", "text": "y"}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "z"}]},
        ],
    },
    {"model": "m", "messages": [{"role": "user", "content": "y"}], "functions": [{"name": "old"}], "function_call": "auto"},
]  # fmt: skip
ITEMS: Final[list[dict[str, Any]]] = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "a", "output": "x"},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]},
    {"type": "custom_tool_call", "call_id": "b", "name": "g", "input": "x"},
    {"type": "custom_tool_call_output", "call_id": "b", "output": "x"},
    {"type": "item_reference", "id": "msg_1"},
]
RESPONSES: Final[list[dict[str, Any]]] = [
    {"model": "m", "input": "hi"},
    {
        "model": "m", "input": ITEMS[:3], "instructions": "i", "stream": True, "store": False, "max_output_tokens": 9,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
        "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": False,
        "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"}, "metadata": {"a": "b"}, "include": [], "previous_response_id": "resp_1",
    },
    {"model": "m", "input": ITEMS, "tools": [{"type": "custom", "name": "g"}, {"type": "namespace", "name": "n",
        "tools": [{"type": "function", "name": "f", "parameters": {}}]}, {"type": "web_search"}]},
]  # fmt: skip
BLOCKS: Final[list[dict[str, Any]]] = [
    {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}, "citations": None},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
    {"type": "document", "title": "t", "source": {"type": "text", "media_type": "text/plain", "data": "x"}},
    {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "x"}], "is_error": True},
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
]
MESSAGES: Final[list[dict[str, Any]]] = [
    {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    {
        "model": "m", "max_tokens": 9, "stream": True, "system": BLOCKS[:1], "temperature": 0.5, "top_k": 3,
        "stop_sequences": ["a"], "thinking": {"type": "enabled", "budget_tokens": 1024}, "metadata": {"user_id": "u"},
        "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object", "properties": {"a": {}}}, "strict": True},
                  {"type": "web_search_20250305", "name": "web_search"}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "messages": [
            {"role": "user", "content": BLOCKS[:3]}, {"role": "assistant", "content": BLOCKS[3:6]},
            {"role": "user", "content": [BLOCKS[6], BLOCKS[0]]}, {"role": "system", "content": "late"},
            {"role": "assistant", "content": [BLOCKS[7], BLOCKS[0]]}, {"role": "user", "content": ""},
        ],
    },
]  # fmt: skip
LEAVES: Final[list[Any]] = [
    None, True, False, 0, 1, -1, 2**70, 1.5, 1e308, "", "x", "hi", "\ud83d", "\x00", "user", "assistant", "tool", "system",
    "developer", "function", "custom", "auto", "none", "required", "text", "input_text", "output_text", "image_url",
    "refusal", "input_image", "message", "function_call", "function_call_output", "reasoning", "allowed_tools", "f", "c1",
    "{}", "a" * 300, "object", "string", "#", "#/$defs/a", "json_schema", "json_object", *ITEMS, CALL, TOOL,
    *BLOCKS, "any", "tool", "enabled", "adaptive", "disabled", "base64", "toolu_1", "ephemeral",
]  # fmt: skip
KEYS: Final = [
    "type", "role", "content", "name", "function", "parameters", "tools", "tool_calls", "tool_call_id", "id", "call_id",
    "arguments", "output", "input", "text", "image_url", "url", "detail", "strict", "stream", "stop", "n", "tool_choice",
    "format", "response_format", "json_schema", "schema", "summary", "model", "messages", "metadata", "seed", "mode",
    "instructions", "store", "include", "zzz", "", "description", "properties",
    "input_schema", "source", "system", "max_tokens", "thinking", "signature", "data", "tool_use_id", "is_error", "title",
    "budget_tokens", "citations", "output_config", "stop_sequences", "cache_control", "display", "thread",
]  # fmt: skip


def _request(protocol: ClientSide, valid_ones: list[dict[str, Any]], data: bytes) -> None:
    tape = Tape(data)
    raw = dump(tape.mutated(tape.pick(valid_ones), LEAVES, KEYS, 12))
    if tape.flag():  # bytes changed as well
        for _ in range(tape.byte() % 4):
            at = (tape.byte() * 256 + tape.byte()) % (len(raw) + 1)
            raw = raw[:at] + tape.raw(tape.byte() % 3) + raw[at + tape.byte() % 3 :]
    limits = LimitsConfig(json_depth=tape.pick([128, 6]), json_values=tape.pick([100_000, 40]))
    try:
        body = asyncio.run(parse_body(raw, limits))
        request = protocol.read_request(body, raw)
    except ClientFault as fault:
        assert fault.status == CODES[fault.code].status
        assert fault.message
        return
    written = protocol.write_request(request)
    wire.dump(written)
    if not request.messages:
        return  # it goes on from a stored response, of which a model server knows nothing
    if any(tool.get("type", "custom") not in ("function", "custom", "namespace") for tool in written.get("tools", ())):
        return  # a tool that only the model server knows: how it is chosen is its business
    again = protocol.read_request(written, b"")
    assert protocol.write_request(again) == written, "what was written and read is written differently"


def chat_request(data: bytes) -> None:
    """Chat bodies: a request or a clear refusal, and what is written of it reads back the same."""
    _request(CHAT_PROTOCOL, CHAT, data)


def responses_request(data: bytes) -> None:
    """The same for bodies of the Responses API."""
    _request(RESPONSES_PROTOCOL, RESPONSES, data)


def messages_request(data: bytes) -> None:
    """The same for bodies of Messages; to a Chat server they can be said, too."""
    _request(MESSAGES_PROTOCOL, MESSAGES, data)


def body(data: bytes) -> None:
    """Any bytes as a body: what the JSON parser says, or a refusal."""
    try:
        value = asyncio.run(parse_body(data, LimitsConfig()))
    except ClientFault as fault:
        assert fault.code == "invalid_json"
    else:
        assert value == orjson.loads(data)


# --- schemas and arguments ------------------------------------------------------------------------------------------

KEYWORDS: Final = [
    "type", "properties", "items", "required", "enum", "const", "anyOf", "allOf", "oneOf", "not", "$ref", "$defs",
    "additionalProperties", "patternProperties", "pattern", "minimum", "maximum", "minLength", "maxItems", "uniqueItems",
    "prefixItems", "if", "then", "else", "dependentSchemas", "propertyNames", "contains", "format", "$id", "$anchor",
    "$dynamicRef", "$dynamicAnchor", "$schema", "multipleOf", "description", "default", "a", "b", "unevaluatedProperties",
]  # fmt: skip
SCHEMA_LEAVES: Final[list[Any]] = [
    {}, True, False, None, "object", "string", "integer", "array", ["string", "null"], "#", "#/$defs/a", "#/properties/a",
    "#a", "a", "http://127.0.0.1:9/x", "^a+$", "(a+)+$", "(?=a)b", "[", 0, 1, -1, 1.5, 10**30, [], ["a"], [1, "x"], "date",
    {"$ref": "#/$defs/a"}, {"type": "string"}, {"properties": {"a": {"type": "integer"}}}, [{}], [{"$ref": "#"}],
    "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#", {"a": {}}, {"a": {"$ref": "#"}},
]  # fmt: skip
SCHEMAS: Final[list[dict[str, Any]]] = [
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"items": {"type": "integer"}}}, "required": ["a"]},
    {"type": "object", "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}, "properties": {"a": {"$ref": "#/$defs/a"}}},
    {"type": "object", "anyOf": [{"properties": {"a": {"enum": [1, "x"]}}}, {"not": {"required": ["b"]}}]},
    {"type": "object", "patternProperties": {"^a": {"pattern": "b+"}}, "additionalProperties": False},
]  # fmt: skip
SIMPLE: Final = frozenset(KEYWORDS[:17]) | {"a", "b", "description", "default", "maxItems"}
"""Keywords that every implementation reads alike, references and patterns excepted."""


def schema(data: bytes) -> None:
    """A tool's schema: refused with the place, or compiled; then any arguments are judged, as the reference does."""
    tape = Tape(data)
    given = tape.mutated(tape.pick(SCHEMAS), SCHEMA_LEAVES, KEYWORDS, 8)
    value = {
        "a": tape.value([1, "x", "ab", None, 1.5, True, "", -7], ["a", "b", "c"]),
        "b": tape.value([0, "b"], ["a"]),
    }
    if not isinstance(given, dict):
        return
    try:
        compiled = compile_schema(given, strict=tape.flag() and tape.flag())
    except SchemaProblem as problem:
        assert problem.message
        return
    said = compiled.check(orjson.dumps(value).decode())
    assert compiled.check(orjson.dumps(value).decode()) == said
    compiled.check(tape.raw(200).decode("latin-1"))
    if said is None or "too " not in said:
        used = set(re.findall(r'"([^"]*)":', json.dumps(given)))
        if used <= SIMPLE - {"$ref", "$defs", "pattern", "patternProperties"}:
            rooted = {"type": "object", **given}
            assert jsonschema.Draft202012Validator(rooted).is_valid(value) == (said is None), (given, value, said)


JSON_PIECES: Final = [
    "{", "}", "[", "]", ":", ",", '"', "'", '"a"', "'b'", '"a":', "a:", "1", "-2.5e3", "01", "true", "True", "None", "NaN",
    "null", "\\", '\\"', "\\u0041", "\\ud83d", "\n", "\t", " ", "```", "```json\n", "\n```", '{"a":1}', "{'a': 'b'}", ",}",
    ",]", '"x\ny"', "é", "\x00", "//c", '"a" "b"', "a b", '{"a":"',
]  # fmt: skip


def repair(data: bytes) -> None:
    """A repaired text is JSON, repairing it again changes nothing, and what was right is not touched."""
    text = Tape(data).text(JSON_PIECES)
    repaired = repair_json(text)
    if repaired is None:
        assert not parses(text)
        return
    fixed, kinds = repaired
    assert parses(fixed)
    json.loads(fixed)
    assert repair_json(fixed) == (fixed, ())
    if parses(text):
        assert (fixed, kinds) == (text, ())


# --- answers that are whole -----------------------------------------------------------------------------------------


ITEM_EVENTS: Final[list[dict[str, Any]]] = [
    {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1", "model": "m", "status": "in_progress", "output": []}},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}},
    {"type": "response.content_part.added", "output_index": 0, "content_index": 0, "item_id": "msg_1", "part": {"type": "output_text", "text": ""}},
    {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": "msg_1", "delta": "x"},
    {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "item_id": "msg_1", "text": "x"},
    {"type": "response.output_item.done", "output_index": 0, "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}},
    {"type": "response.output_item.added", "output_index": 1, "item": {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": "{}"},
    {"type": "response.output_item.done", "output_index": 1, "item": {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 2, "summary_index": 0, "item_id": "rs_1", "delta": "s"},
    {"type": "response.completed", "response": {"id": "resp_1", "model": "m", "status": "completed", "output": [], "usage": {"input_tokens": 1, "output_tokens": 2}}},
    {"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": {"code": "server_error", "message": "x"}}},
    {"type": "error", "error": {"type": "x", "code": "rate_limit_exceeded", "message": "x"}},
]  # fmt: skip
BLOCK_EVENTS: Final[list[dict[str, Any]]] = [
    {"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": [], "usage": {"input_tokens": 3, "output_tokens": 0}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x"}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "citations_delta", "citation": {"type": "x"}}},
    {"type": "content_block_start", "index": 2, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}},
    {"type": "content_block_delta", "index": 2, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_start", "index": 3, "content_block": {"type": "server_tool_use", "id": "s", "name": "g", "input": {}}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"}, {"type": "ping"}, {"type": "error", "error": {"type": "overloaded_error", "message": "x"}},
]  # fmt: skip


def event_readers(data: bytes) -> None:
    """The same for readers of streams that are events of many kinds: Responses and Messages."""
    tape = Tape(data)
    protocol, known = tape.pick([(RESPONSES_PROTOCOL, ITEM_EVENTS), (MESSAGES_PROTOCOL, BLOCK_EVENTS)])
    seed, bound, stay = tape.byte(), tape.pick([1 << 20, 400]), tape.byte() % 8
    told = (
        [one for one in known if not stay or tape.byte() % 8] if tape.flag() else [tape.pick(known) for _ in range(12)]
    )
    changed = [tape.mutated(one, LEAVES, EVENT_KEYS, 2) if tape.byte() % 4 == 0 else one for one in told]
    stream = b"".join(
        b"event: %b\ndata: %b\n\n" % (str(one["type"]).encode(), dump(new))
        for one, new in zip(told, changed, strict=True)
    )
    _read(protocol, stream, seed, bound)


EVENT_KEYS: Final = [
    *KEYS, "delta", "index", "output_index", "content_index", "item_id", "item", "part", "response", "content_block", "error",
    "usage", "message", "partial_json", "status", "code", "stop_reason", "summary_index", "input_tokens", "output_tokens",
]  # fmt: skip


def whole_events(data: bytes) -> None:
    """Whole answers of Responses and Messages servers: read, or an error that says whose fault it is."""
    tape = Tape(data)
    output = [ITEM_EVENTS[5]["item"], ITEM_EVENTS[8]["item"], *ITEMS[3:4]]
    counts = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    resource = {"id": "resp_1", "object": "response", "status": "completed", "output": output, "usage": counts}
    message = {"id": "msg_1", "type": "message", "content": BLOCKS[:6], "stop_reason": "end_turn", "usage": counts}
    protocol, start = tape.pick([(RESPONSES_PROTOCOL, resource), (MESSAGES_PROTOCOL, message)])
    raw = dump(tape.mutated(start, LEAVES, EVENT_KEYS, 8))
    try:
        assert protocol.read_reply(raw).choices
    except GatewayError as error:
        assert error.code in CODES, error.code
        assert error.message


def reply(data: bytes) -> None:
    """A whole answer of a model server: read, or an error that says whose fault it is."""
    tape = Tape(data)
    protocol: ServerSide = tape.pick([CHAT_PROTOCOL, COMPLETIONS_PROTOCOL])
    start = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "usage": {"prompt_tokens": 1},
             "choices": [{"index": 0, "message": {"role": "assistant", "content": "x", "tool_calls": [CALL]},
                          "text": "x", "finish_reason": "stop", "logprobs": None}]}  # fmt: skip
    raw = dump(tape.mutated(start, LEAVES, [*KEYS, "choices", "message", "usage", "finish_reason", "error"], 8))
    try:
        assert protocol.read_reply(raw).choices
    except GatewayError as error:
        assert error.code in ("upstream_invalid_response", "upstream_error", "context_length_exceeded"), error.code


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    target.__name__: target
    for target in (
        *(scanner, formats, stream_paths, readers, relay),
        *(event_readers, chat_request, responses_request, messages_request, body, schema, repair, reply, whole_events),
    )
}
