"""A simulated model server with scripted answers, in the same process; for tests, benchmarks and a first try.

A script is a list of turns. The turn that answers a request depends on the request alone, so requests can run in
parallel:

1. The first turn whose `when` occurs in a message after the last assistant message, system messages excepted.
2. Otherwise, of the turns without `when`, number *k*, where *k* is the number of assistant messages in the request;
   after the last turn, that one answers again.
3. Without such a turn, the built-in answer: in the first turn a call of the first offered tool, with arguments that fit
   its schema; otherwise an echo of the last message (of tool results, their text).

A turn is a text, or a mapping:

| key | meaning |
| --- | --- |
| `text` | the text that the model writes |
| `chunk` | characters per delta (default 4), or a list of the exact pieces, which replaces `text` |
| `delay_s` | pause before each delta |
| `reasoning` | reasoning that the server sends separately, before the text |
| `calls` | native calls after the text: `{name, arguments}`, `arguments` as text or as a value |
| `finish` | the server's finish reason; default `stop`, with calls `tool_calls` |
| `usage` | `{input, output}` token counts; default: the server reports none |
| `error` | `{status, code, message, after}`: fail, at once or after this many characters of text |
| `when` | see above |

Nothing is random. Ids are numbered by turn.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import orjson

from ...config import BackendConfig, LimitsConfig
from ...errors import BackendFault, GatewayError
from ...events import BlockKind, Call, Close, Delta, Event, Fault, Finish, Open, Start
from ...formats.engine.results import TOOL_RESPONSE
from ...model import Message, ModelRequest, Text, ToolResult, ToolUse, Usage
from ...protocols.base import ServerSide
from ...record import BackendObserver
from ...support.plainyaml import read_yaml
from .base import EventSource
from .presets import capabilities
from .upstream_errors import read_refusal

CREATED: Final = 1_700_000_000
DEFAULT_CHUNK: Final = 4
_MAX_DEPTH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The error of a scripted turn."""

    status: int = 500
    code: str | None = None
    message: str = "scripted failure"
    after: int | None = None

    def error(self) -> GatewayError:
        """Returns the gateway's error for a real server's answer with this status."""
        body = {"error": {"message": self.message, "type": "server_error", "param": None, "code": self.code}}
        return read_refusal(self.status, {}, orjson.dumps(body))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedTurn:
    """One scripted answer; see the table in the module's docstring."""

    text: str = ""
    chunk: int | tuple[str, ...] = DEFAULT_CHUNK
    delay_s: float = 0.0
    reasoning: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    usage: Usage | None = None
    error: Failure | None = None
    when: str | None = None

    @property
    def pieces(self) -> tuple[str, ...]:
        """The texts of the deltas."""
        return self.chunk if isinstance(self.chunk, tuple) else _cut(self.text, self.chunk)


def _cut(text: str, size: int) -> tuple[str, ...]:
    return tuple(text[i : i + size] for i in range(0, len(text), size))


def read_script(script: Any) -> tuple[ScriptedTurn, ...]:
    """Returns the turns in `script` (a list, or one turn). Raises `ValueError` that names the turn and the key."""
    if script is None:
        return ()
    entries = script if isinstance(script, Sequence) and not isinstance(script, str) else [script]
    return tuple(_read_turn(entry, f"script[{i}]") for i, entry in enumerate(entries))


def _read_turn(entry: Any, where: str) -> ScriptedTurn:
    if isinstance(entry, ScriptedTurn):
        return entry
    if isinstance(entry, str):
        return ScriptedTurn(text=entry)
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} must be a text or a mapping, not {type(entry).__name__}")
    values = dict(entry)
    _refuse_unknown(values, {f.name for f in fields(ScriptedTurn)}, where)
    chunk = values.get("chunk", DEFAULT_CHUNK)
    if isinstance(chunk, Sequence) and not isinstance(chunk, str):
        values["chunk"] = tuple(map(str, chunk))
        values["text"] = "".join(values["chunk"])
    elif not isinstance(chunk, int) or chunk < 1:
        raise ValueError(f"{where}.chunk must be a positive number or a list of texts")
    calls = values.get("calls", ())
    values["calls"] = tuple(_read_call(call, f"{where}.calls[{i}]") for i, call in enumerate(calls))
    if (usage := values.get("usage")) is not None and not isinstance(usage, Usage):
        _refuse_unknown(usage, {"input", "output"}, f"{where}.usage")
        values["usage"] = Usage(int(usage.get("input", 0)), int(usage.get("output", 0)))
    if (error := values.get("error")) is not None and not isinstance(error, Failure):
        _refuse_unknown(error, {f.name for f in fields(Failure)}, f"{where}.error")
        values["error"] = Failure(**error)
    return ScriptedTurn(**values)


def _read_call(call: Any, where: str) -> tuple[str, str]:
    if isinstance(call, tuple):
        return call
    if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
        raise ValueError(f"{where} must be a mapping with `name` and `arguments`")
    arguments = call.get("arguments", {})
    return call["name"], arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()


def _refuse_unknown(mapping: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := set(mapping) - known:
        raise ValueError(f"{where} has unknown keys {sorted(unknown)}: known are {sorted(known)}")


class MockBackend:
    """The scripted backend. `config.script` is a script, or the path of a YAML or JSON file with one."""

    protocol: ServerSide | None = None

    def __init__(self, name: str, config: BackendConfig, limits: LimitsConfig) -> None:
        self.name = name
        self.capabilities = capabilities(replace(config, images=config.images or "true"))
        self._path = Path(config.script) if isinstance(config.script, str) else None
        self._turns = () if self._path else read_script(config.script)

    async def start(self) -> None:
        """Reads the script's file, if there is one."""
        if self._path is not None:
            text = await asyncio.to_thread(self._path.read_text, encoding="utf-8")
            self._turns = read_script(read_yaml(text)[0])

    async def close(self) -> None:
        """Does nothing."""

    async def open(
        self,
        request: ModelRequest,
        *,
        request_id: str,
        body: bytes | None = None,
        observer: BackendObserver | None = None,
    ) -> MockSource:
        """Returns the source of the turn for `request`. Raises the turn's error if it fails at once."""
        number = sum(message.role == "assistant" for message in request.messages)
        turn = self.choose(request, number)
        if turn.error is not None and turn.error.after is None:
            if turn.delay_s:
                await asyncio.sleep(turn.delay_s)
            raise turn.error.error()
        return MockSource(turn, request, number)

    async def ready(self) -> bool:
        """Returns True."""
        return True

    async def models(self) -> list[str]:
        """Returns an empty list, because every model name is accepted."""
        return []

    def choose(self, request: ModelRequest, number: int) -> ScriptedTurn:
        """Returns the turn for `request`, which contains `number` assistant messages."""
        ordered = [turn for turn in self._turns if turn.when is None]
        if len(ordered) < len(self._turns):
            asked = list(map(plain_text, _unanswered(request.messages)))
            for turn in self._turns:
                if turn.when is not None and any(turn.when in text for text in asked):
                    return turn
        if ordered:
            return ordered[min(number, len(ordered) - 1)]
        return default_turn(request, number, plain_text(request.messages[-1]) if request.messages else "")


def _unanswered(messages: Sequence[Message]) -> Iterator[Message]:
    """Yields the messages since the last assistant message, the latest first."""
    for message in reversed(messages):
        if message.role == "assistant":
            return
        if message.role not in ("system", "developer"):
            yield message


class MockSource(EventSource):
    """The source of one scripted answer."""

    def __init__(self, turn: ScriptedTurn, request: ModelRequest, number: int) -> None:
        self._turn = turn
        self._request = request
        self._number = number
        self.closed = False

    async def batches(self) -> AsyncIterator[list[Event]]:
        """Yields the turn's events, one list per delta."""
        for batch in self._script():
            if self._turn.delay_s:
                await asyncio.sleep(self._turn.delay_s)
            if self.closed:
                yield [Fault(BackendFault("The answer was closed.", code="upstream_disconnected"))]
                return
            yield batch

    async def close(self) -> None:
        """Marks the source as closed; the next batch is a `Fault`."""
        self.closed = True

    def _script(self) -> list[list[Event]]:
        turn = self._turn
        out: list[list[Event]] = [[Start(f"chatcmpl-mock{self._number}", self._request.model, CREATED)]]
        block = 0
        if turn.reasoning:
            out[0].append(Open(block, BlockKind.REASONING))
            out += [[Delta(block, piece)] for piece in _cut(turn.reasoning, DEFAULT_CHUNK)]
            out[-1].append(Close(block))
            block += 1
        failure = turn.error
        pieces = turn.pieces if failure is None else _head(turn.pieces, failure.after or 0)
        if pieces:
            out[-1].append(Open(block, BlockKind.TEXT))
            out += [[Delta(block, piece)] for piece in pieces]
        if failure is not None:
            return [*out, [Fault(failure.error())]]
        if pieces:
            out[-1].append(Close(block))
            block += 1
        for i, (name, arguments) in enumerate(turn.calls):
            use = ToolUse(f"call_{self._number:016x}{i:016x}", name, arguments)
            out.append(Call(block, use).events())
            block += 1
        out[-1].append(Finish(turn.finish or ("tool_calls" if turn.calls else "stop"), turn.usage))
        return out


def _head(pieces: Sequence[str], length: int) -> tuple[str, ...]:
    """Returns the pieces up to `length` characters, the last one cut."""
    out = []
    for piece in pieces:
        if length <= 0:
            break
        out.append(piece[:length])
        length -= len(piece)
    return tuple(out)


# --- the built-in answer --------------------------------------------------------------------------------------------


def plain_text(message: Message) -> str:
    """Returns all text of a message, including that of tool results."""
    texts = []
    for part in message.parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolResult):
            texts += [p.text for p in part.parts if isinstance(p, Text)]
    return "".join(texts)


def default_turn(request: ModelRequest, number: int, last: str) -> ScriptedTurn:
    """Returns a turn with a call of the first tool, natively or in the text format that the prompt teaches by default;
    otherwise a turn that echoes the text `last`."""
    if number == 0:
        if request.callable_tools:
            tool = request.callable_tools[0]
            return ScriptedTurn(calls=((tool.name, _arguments(tool.parameters)),))
        if (taught := taught_tool(request)) is not None:
            name, parameters = taught
            call = orjson.dumps({"name": name, "arguments": _arguments(parameters)}).decode()
            return ScriptedTurn(text=f"I will call {name}.\n<tool_call>{call}</tool_call>")
    text = TOOL_RESPONSE.unwrapped(last) or last
    return ScriptedTurn(text=f"You said: {text}" if text else "Hello.")


def taught_tool(request: ModelRequest) -> tuple[str, Mapping[str, Any] | None] | None:
    """Returns the first tool that the prompt describes as a JSON object with `name` and `parameters`, on a line of its
    own; None if there is none."""
    if "<tool_call>" not in "".join(plain_text(m) for m in request.messages[:2]):
        return None
    for message in request.messages[:2]:
        for line in plain_text(message).splitlines():
            start = line.find('{"')
            if start < 0:
                continue
            try:
                value, _ = json.JSONDecoder().raw_decode(line, start)
            except (ValueError, RecursionError):
                continue
            tool = value.get("function", value)
            if (
                isinstance(tool, dict)
                and isinstance(tool.get("name"), str)
                and isinstance(tool.get("parameters"), dict)
            ):
                return tool["name"], tool["parameters"]
    return None


def _arguments(parameters: Mapping[str, Any] | None) -> str:
    return orjson.dumps(example_value(parameters or {"type": "object"}, parameters or {})).decode()


def example_value(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Returns a simple value that fits a simple JSON Schema. Patterns, formats and combined bounds are ignored."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return None
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: Any = root
        for key in reference[2:].split("/"):
            target = target.get(key) if isinstance(target, Mapping) else None
        return example_value(target, root, depth + 1)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    for key in ("enum", "examples"):
        if schema.get(key):
            return schema[key][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return example_value(schema[key][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    properties: Mapping[str, Any] = schema.get("properties", {})
    match kind:
        case "object":
            names = schema.get("required", list(properties))
            return {name: example_value(properties.get(name, {}), root, depth + 1) for name in names}
        case "array":
            count = max(1, schema.get("minItems", 1))
            return [example_value(schema.get("items", {}), root, depth + 1) for _ in range(count)]
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "example".ljust(schema.get("minLength", 0), ".")[: schema.get("maxLength")]
