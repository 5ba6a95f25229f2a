"""Model servers that refuse a history without the reasoning that they gave, each by its own rule, and clients that
bring back what they got (R28.3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp.test_utils import TestServer

from tests.e2e.conftest import CHAT, post, read_config
from tests.e2e.meaning import MESSAGES, RESPONSES
from tests.protocols import messages_wires, responses_wires
from toolwire.config import GatewayConfig
from toolwire.testing import Answer, Asked, Upstream

SSE = {"Content-Type": "text/event-stream"}
JSON = {"Content-Type": "application/json"}
TURNS = 3
SAID = "All read."


def thought(turn: int) -> str:
    """What a server thinks in a turn."""
    return f"I must read file {turn}: «ü🚀»."


# --- servers --------------------------------------------------------------------------------------------------------


class Server:
    """Gives `TURNS` turns with reasoning and a call, then a text. `faults` are what was wrong with a history."""

    kind = "openai_chat"
    facts: Mapping[str, Any] = {}

    def __init__(self, name: str = "one") -> None:
        self.name = name
        self.calls = [("read", {"path": f"{turn}.txt"}) for turn in range(TURNS)]
        self.faults: list[str] = []
        self.bodies: list[Any] = []

    def __call__(self, asked: Asked) -> Answer:
        body = asked.json
        self.bodies.append(body)
        turns = self.turns(body)
        wrong = [fault for turn, held in enumerate(turns) if (fault := self.fault(turn, held))]
        if wrong:
            self.faults += wrong
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": wrong[0]}}
            return Answer([json.dumps(error).encode()], status=400, headers=JSON, framing="length")
        streamed = body.get("stream") is True
        data = self.answer(len(turns), streamed)
        return Answer([data], headers=SSE if streamed else JSON, framing="length")

    def turns(self, body: Any) -> list[Any]:
        """The turns of the assistant in a history, in the server's own form."""
        return [message for message in body["messages"] if message["role"] == "assistant"]

    def fault(self, turn: int, held: Any) -> str | None:
        """What is wrong with one of them."""
        raise NotImplementedError

    def answer(self, turn: int, streamed: bool) -> bytes:
        """The next turn."""
        raise NotImplementedError


def _expect(what: str, wanted: Any, got: Any) -> str | None:
    return None if wanted == got else f"{what}: expected {wanted!r}, got {got!r}"


class Chat(Server):
    """A Chat server; `message` is what it says in a turn, `deltas` the same in pieces."""

    def message(self, turn: int) -> dict[str, Any]:
        raise NotImplementedError

    def deltas(self, turn: int) -> list[dict[str, Any]]:
        raise NotImplementedError

    def call(self, turn: int) -> dict[str, Any]:
        name, arguments = self.calls[turn]
        function = {"name": name, "arguments": json.dumps(arguments)}
        return {"id": f"call_{turn}_{self.name}", "type": "function", "function": function}

    def answer(self, turn: int, streamed: bool) -> bytes:
        last = turn == len(self.calls)
        about = {"id": f"chatcmpl-{turn}", "created": 1, "model": "m"}
        reason = "stop" if last else "tool_calls"
        if streamed:
            deltas = [{"role": "assistant", "content": SAID}] if last else self.deltas(turn)
            chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
            chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
            shown = [{**about, "object": "chat.completion.chunk", **chunk} for chunk in chunks]
            return b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in shown) + b"data: [DONE]\n\n"
        message = {"role": "assistant", **({"content": SAID} if last else self.message(turn))}
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        return json.dumps({**about, "object": "chat.completion", "choices": choices}).encode()


class DeepSeek(Chat):
    """Refuses turns with calls that lack their `reasoning_content`."""

    field = "reasoning_content"

    def fault(self, turn: int, held: Any) -> str | None:
        if held.get("content") is None and not held.get("tool_calls"):
            return "an assistant message with null content and no calls"
        return _expect(self.field, thought(turn), held.get(self.field)) if held.get("tool_calls") else None

    def message(self, turn: int) -> dict[str, Any]:
        return {"content": None, self.field: thought(turn), "tool_calls": [self.call(turn)]}

    def deltas(self, turn: int) -> list[dict[str, Any]]:
        text = thought(turn)
        return [
            {"role": "assistant", self.field: text[:5]},
            {self.field: text[5:]},
            {"tool_calls": [{"index": 0, **self.call(turn)}]},
        ]


class Vllm(DeepSeek):
    """Says `reasoning`, and reads nothing else."""

    field = "reasoning"
    facts: Mapping[str, Any] = {"preset": "vllm"}


class OpenRouter(Chat):
    """Wants its `reasoning_details` back as they were."""

    def details(self, turn: int) -> list[dict[str, Any]]:
        text = {"type": "reasoning.text", "text": thought(turn), "format": "anthropic-claude-v1", "index": 0}
        return [
            {**text, "signature": f"sig-{turn}-{self.name}"},
            {"type": "reasoning.encrypted", "data": f"enc-{turn}-{self.name}", "id": "r1", "format": "x", "index": 1},
        ]

    def fault(self, turn: int, held: Any) -> str | None:
        return (
            _expect("reasoning_details", self.details(turn), held.get("reasoning_details"))
            if held.get("tool_calls")
            else None
        )

    def message(self, turn: int) -> dict[str, Any]:
        details = self.details(turn)
        return {
            "content": "",
            "reasoning": thought(turn),
            "reasoning_details": details,
            "tool_calls": [self.call(turn)],
        }

    def deltas(self, turn: int) -> list[dict[str, Any]]:
        signed, encrypted = self.details(turn)
        text = thought(turn)
        bare = {key: value for key, value in signed.items() if key != "signature"}
        return [
            {
                "role": "assistant",
                "content": "",
                "reasoning": text[:4],
                "reasoning_details": [{**bare, "text": text[:4]}],
            },
            {"content": "", "reasoning": text[4:], "reasoning_details": [{**bare, "text": text[4:]}]},
            {
                "content": "",
                "reasoning_details": [{"type": "reasoning.text", "signature": signed["signature"], "index": 0}],
            },
            {"content": "", "reasoning_details": [encrypted]},
            {"tool_calls": [{"index": 0, **self.call(turn)}]},
        ]


class Gemini(Chat):
    """Wants the signatures of its calls back."""

    def call(self, turn: int) -> dict[str, Any]:
        return {**super().call(turn), "extra_content": {"google": {"thought_signature": f"gs-{turn}-{self.name}"}}}

    def fault(self, turn: int, held: Any) -> str | None:
        for call in held.get("tool_calls") or ():
            return _expect("thought_signature", self.call(turn)["extra_content"], call.get("extra_content"))
        return None

    def message(self, turn: int) -> dict[str, Any]:
        return {"content": None, "tool_calls": [self.call(turn)]}

    def deltas(self, turn: int) -> list[dict[str, Any]]:
        return [{"role": "assistant", "tool_calls": [{"index": 0, **self.call(turn)}]}]


class Anthropic(Server):
    """Checks signatures byte for byte: thinking first, a redacted block in its place."""

    kind = "anthropic_messages"

    def blocks(self, turn: int) -> list[dict[str, Any]]:
        if turn == len(self.calls):
            return [{"type": "text", "text": SAID}]
        name, arguments = self.calls[turn]
        signature = f"EqQB{turn}{self.name}=="
        return [
            {"type": "thinking", "thinking": thought(turn), "signature": signature},
            {"type": "redacted_thinking", "data": f"red-{turn}-{self.name}"},
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": f"toolu_{turn}{self.name}", "name": name, "input": arguments},
        ]

    def fault(self, turn: int, held: Any) -> str | None:
        content = held["content"]
        if not content:
            return "an empty message"
        if isinstance(content, str) or turn == len(self.calls):
            return None
        thinking = [block for block in content if "thinking" in block["type"]]
        if content[: len(thinking)] != thinking:
            return "thinking does not come first"
        wanted = self.blocks(turn)[:2]
        if self.omits(self.bodies[-1]):
            wanted[0] = {**wanted[0], "thinking": ""}
        return _expect("thinking", wanted, thinking)

    @staticmethod
    def omits(body: Any) -> bool:
        return (body.get("thinking") or {}).get("display") == "omitted"

    def answer(self, turn: int, streamed: bool) -> bytes:
        blocks = self.blocks(turn)
        if self.omits(self.bodies[-1]) and turn < len(self.calls):
            blocks[0] = {**blocks[0], "thinking": ""}
        about = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "m"}
        stop = {"stop_reason": "end_turn" if turn == TURNS else "tool_use", "stop_sequence": None}
        usage = {"input_tokens": 1, "output_tokens": 1}
        if not streamed:
            return json.dumps({**about, "content": blocks, **stop, "usage": usage}).encode()
        frame = messages_wires.frame
        empty = {**about, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        out = [frame("message_start", message=empty)]
        for index, block in enumerate(blocks):
            match block:
                case {"type": "thinking"}:
                    start = {"type": "thinking", "thinking": "", "signature": ""}
                    deltas = [
                        {"type": "thinking_delta", "thinking": block["thinking"][:3]},
                        {"type": "thinking_delta", "thinking": block["thinking"][3:]},
                        {"type": "signature_delta", "signature": block["signature"]},
                    ]
                case {"type": "text"}:
                    start, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
                case {"type": "tool_use"}:
                    start = {**block, "input": {}}
                    deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
                case _:
                    start, deltas = block, []
            out.append(frame("content_block_start", index=index, content_block=start))
            out += [frame("content_block_delta", index=index, delta=delta) for delta in deltas]
            out.append(frame("content_block_stop", index=index))
        out += [frame("message_delta", delta=stop, usage=usage), frame("message_stop")]
        return b"".join(out)


class OpenAI(Server):
    """Refuses reasoning with `content`, and demands its `encrypted_content`."""

    kind = "openai_responses"
    facts: Mapping[str, Any] = {"preset": "openai"}

    def turns(self, body: Any) -> list[Any]:
        found: list[list[Any]] = [[]]
        for item in body["input"] if isinstance(body["input"], list) else ():
            if item.get("role") in ("user", "system", "developer"):
                continue
            if item["type"] == "function_call_output":
                found.append([])
            else:
                found[-1].append(item)
        return found[:-1]

    def item(self, turn: int) -> dict[str, Any]:
        summary = [{"type": "summary_text", "text": thought(turn)}]
        ident, encrypted = f"rs_{turn}{self.name}", f"gAAAA{turn}{self.name}"
        return {"type": "reasoning", "id": ident, "summary": summary, "encrypted_content": encrypted}

    def fault(self, turn: int, held: Any) -> str | None:
        items = [item for item in held if item["type"] == "reasoning"]
        if any("content" in item for item in items):
            return "reasoning with content"
        wanted = {key: value for key, value in self.item(turn).items() if key != "id"}
        return _expect(
            "reasoning", [wanted], [{key: value for key, value in item.items() if key != "id"} for item in items]
        )

    def answer(self, turn: int, streamed: bool) -> bytes:
        call = {"type": "function_call", "id": f"fc_{turn}", "call_id": f"call_{turn}{self.name}"}
        said = {"type": "output_text", "text": SAID, "annotations": []}
        output = [{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [said]}]
        if turn < len(self.calls):
            name, arguments = self.calls[turn]
            called = {**call, "name": name, "arguments": json.dumps(arguments), "status": "completed"}
            output = [self.item(turn), called]
        response = {"id": f"resp_{turn}", "object": "response", "created_at": 1, "model": "m", "output": []}
        done = {**response, "status": "completed", "output": output}
        if not streamed:
            return json.dumps(done).encode()
        events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "status": "in_progress"}}]
        for index, item in enumerate(output):
            events += [
                {"type": f"response.output_item.{edge}", "output_index": index, "item": item}
                for edge in ("added", "done")
            ]
        events.append({"type": "response.completed", "response": done})
        return b"".join(responses_wires.frame(event) for event in events)


class ContentResponses(Server):
    """A Responses server that wants reasoning with `content`."""

    kind = "openai_responses"
    turns = OpenAI.turns

    def item(self, turn: int) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": thought(turn)}]
        return {"type": "reasoning", "id": f"rs_{turn}", "summary": [], "content": content}

    def fault(self, turn: int, held: Any) -> str | None:
        texts = [part["text"] for item in held if item["type"] == "reasoning" for part in item.get("content", ())]
        return _expect("reasoning", [thought(turn)], texts)

    answer = OpenAI.answer


SERVERS: tuple[type[Server], ...] = (DeepSeek, Vllm, OpenRouter, Gemini, Anthropic, OpenAI, ContentResponses)


def before(model: Server, up: Upstream, **sections: Any) -> GatewayConfig:
    """A gateway before one server."""
    backend = {"kind": model.kind, "url": up.url, "identify_s": None, **model.facts}
    return read_config({"backends": {"up": backend}, "defaults": {"mode": "native"}, **sections})


# --- clients --------------------------------------------------------------------------------------------------------

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
FUNCTION = {"name": "read", "parameters": SCHEMA}


class Client:
    """Goes on with a conversation until a turn has no call. `history` is in its protocol's form."""

    path: str

    def __init__(self, *, stream: bool, model: str = "m", headers: Mapping[str, str] | None = None) -> None:
        self.stream = stream
        self.model = model
        self.headers = headers
        self.history: list[Any] = [{"role": "user", "content": "Read all."}]

    async def ask(self, server: TestServer, **more: Any) -> Any:
        """One turn; what came of it stands in the history. The fault if it was refused."""
        body = {"model": self.model, "stream": self.stream, **self.body(), **more}
        answer = await post(server, body, path=self.path, headers=self.headers)
        assert answer.status == 200, answer.body
        return self.take(answer.body)

    async def run(self, server: TestServer, **more: Any) -> str:
        """All turns; what was said at the end."""
        for _ in range(TURNS + 1):
            if text := await self.ask(server, **more):
                return str(text)
        raise AssertionError("the answer has no end")

    def body(self) -> dict[str, Any]:
        raise NotImplementedError

    def take(self, data: bytes) -> str:
        raise NotImplementedError


class ChatClient(Client):
    """Brings messages back as they are, as `openai` users do."""

    path = CHAT

    def body(self) -> dict[str, Any]:
        return {"messages": self.history, "tools": [{"type": "function", "function": FUNCTION}]}

    def take(self, data: bytes) -> str:
        message = _added_up(data) if self.stream else json.loads(data)["choices"][0]["message"]
        self.history.append(
            {"role": "assistant", **{key: value for key, value in message.items() if value is not None}}
        )
        self.history[-1].setdefault("content", None)
        for call in message.get("tool_calls") or ():
            self.history.append({"role": "tool", "tool_call_id": call["id"], "content": "text"})
        return "" if message.get("tool_calls") else message["content"]


def _added_up(data: bytes) -> dict[str, Any]:
    message: dict[str, Any] = {}
    for line in data.decode().split("\n\n"):
        if not line.startswith("data: {"):
            continue
        chunk = json.loads(line.removeprefix("data: "))
        assert "error" not in chunk, chunk
        for key, value in chunk["choices"][0]["delta"].items():
            if key == "tool_calls":
                calls = message.setdefault("tool_calls", [])
                for piece in value:
                    if piece["index"] == len(calls):
                        calls.append({k: v for k, v in piece.items() if k != "index"})
                    else:
                        calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
            elif isinstance(value, list | str) and key != "role":
                message[key] = (message.get(key) or type(value)()) + value
    return message


class ResponsesClient(Client):
    """Keeps nothing at the server and asks for encrypted reasoning; as Codex it brings back no `content` of it."""

    path = RESPONSES
    include = True
    ident = ""
    """Of the last response."""

    def body(self) -> dict[str, Any]:
        included = {"include": ["reasoning.encrypted_content"]} if self.include else {}
        tools = [{"type": "function", "strict": False, **FUNCTION}]
        return {"input": self.history, "tools": tools, "store": False, **included}

    def take(self, data: bytes) -> str:
        if self.stream:
            events = responses_wires.payloads(data)
            assert events[-1]["type"] == "response.completed", events[-1]
            output = responses_wires.accumulate(events)
            self.ident = events[-1]["response"]["id"]
        else:
            output = json.loads(data)["output"]
            self.ident = json.loads(data)["id"]
        for item in output:
            self.history.append(self.brought(item))
            if item["type"] == "function_call":
                self.history.append({"type": "function_call_output", "call_id": item["call_id"], "output": "text"})
        if any(item["type"] == "function_call" for item in output):
            return ""
        return "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])

    def brought(self, item: dict[str, Any]) -> dict[str, Any]:
        """An item as it comes back."""
        return {
            key: value for key, value in item.items() if key not in ("id", "content") or item["type"] != "reasoning"
        }


class AgentsClient(ResponsesClient):
    """Brings items back as they are, and asks for nothing."""

    include = False

    def brought(self, item: dict[str, Any]) -> dict[str, Any]:
        return item


class MessagesClient(Client):
    """Brings blocks back as they are."""

    path = MESSAGES
    thinking: Mapping[str, Any] = {"type": "adaptive"}

    def body(self) -> dict[str, Any]:
        tools = [{"name": "read", "input_schema": SCHEMA}]
        return {"max_tokens": 99, "messages": self.history, "tools": tools, "thinking": self.thinking}

    def take(self, data: bytes) -> str:
        content = (messages_wires.accumulate(data) if self.stream else json.loads(data))["content"]
        self.history.append({"role": "assistant", "content": content})
        calls = [block["id"] for block in content if block["type"] == "tool_use"]
        if calls:
            results = [{"type": "tool_result", "tool_use_id": ident, "content": "text"} for ident in calls]
            self.history.append({"role": "user", "content": results})
            return ""
        return "".join(block["text"] for block in content if block["type"] == "text")


class OmittingClient(MessagesClient):
    """Wants no text of thinking."""

    thinking: Mapping[str, Any] = {"type": "adaptive", "display": "omitted"}


CLIENTS: tuple[type[Client], ...] = (ChatClient, ResponsesClient, AgentsClient, MessagesClient, OmittingClient)


def found(value: Any, wanted: Callable[[Any], bool]) -> Iterable[Any]:
    """What in a JSON value is as wanted, from the outside in."""
    if wanted(value):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from found(item, wanted)
