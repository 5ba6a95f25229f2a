"""Model servers that write tools by a chat template, as real ones were seen to do it: vLLM and llama.cpp under any
`tool_choice`, SGLang under any but `none`, with a parser of calls or without one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from tests.e2e.engines import Engine, llamacpp, page, sglang, vllm
from toolwire.testing import Answer, Asked, Refuse, Script, Upstream

QWEN = "Qwen/Qwen2.5-Coder-0.5B-Instruct"
PROBE_CALL = '<tool_call>\n{"name": "report_ready", "arguments": {"ready": true}}\n</tool_call>'
SSE = {"Content-Type": "text/event-stream"}
KINDS: Mapping[str, Callable[[], Engine]] = {
    "vllm": lambda: vllm(root=QWEN),
    "llamacpp": lambda: llamacpp("qwen2.5-coder-0.5b-instruct"),
    "sglang": lambda: sglang(QWEN),
}


def rendered(messages: list[Any], tools: list[Any] | None) -> str:
    """The prompt: a template in the manner of Qwen's."""
    out = []
    if tools:
        lines = "\n".join(json.dumps(tool) for tool in tools)
        out.append(f"<|im_start|>system\n# Tools\n<tools>\n{lines}\n</tools><|im_end|>\n")
    for message in messages:
        text = message.get("content") or ""
        for call in message.get("tool_calls") or ():
            named = json.dumps({"name": call["function"]["name"], "arguments": call["function"]["arguments"]})
            text += f"\n<tool_call>\n{named}\n</tool_call>"
        if message["role"] == "tool":
            text = f"<tool_response>\n{text}\n</tool_response>"
        out.append(f"<|im_start|>{message['role']}\n{text}<|im_end|>\n")
    return "".join([*out, "<|im_start|>assistant\n"])


@dataclass
class TemplateServer:
    """A server of a kind of `KINDS`. `says` is what its model writes after a prompt that is no probe's, and
    `to_probe` what it writes after those. `reads`: it was started with a parser. `refuses`: it takes
    no tools. `ignores`: its template leaves tools out. `counts`: it says how many tokens a prompt has;
    `with tools`: only if there are tools. `reason`: why an answer without calls of the parser ends."""

    kind: str = "vllm"
    says: Callable[[str], str] | str = "Hello."
    to_probe: str = PROBE_CALL
    reads: bool = False
    refuses: bool = False
    ignores: bool = False
    counts: bool | Literal["with tools"] = True
    reason: str = "stop"
    prompts: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Answer:
        body = asked.json
        if asked.path in ("/tokenize", "/apply-template"):
            prompt = rendered(body.get("messages", []), self._shown({**body, "tool_choice": "auto"}))
            tokens = list(prompt.encode())
            return page({"count": len(tokens), "tokens": tokens} if asked.path == "/tokenize" else {"prompt": prompt})
        if asked.path == "/detokenize":
            return page({"text" if self.kind == "sglang" else "prompt": bytes(body["tokens"]).decode()})
        if self.refuses and body.get("tools"):
            return Refuse(500, body=orjson.dumps({"error": {"message": "tools param requires --jinja flag"}}))
        choice = body.get("tool_choice", "auto")
        if self.kind == "llamacpp" and body.get("tools") and choice != "none" and "grammar" in body:
            message = "Cannot use custom grammar constraints with tools."
            return Refuse(400, body=orjson.dumps({"error": {"code": 400, "message": message}}))
        prompt = rendered(body["messages"], self._shown(body))
        self.prompts.append(prompt)
        is_probe = "that you were given" in prompt or "report_ready" in prompt
        text = self.to_probe if is_probe else self.says if isinstance(self.says, str) else self.says(prompt)
        usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": 4}
        usage["total_tokens"] = sum(usage.values())
        if self.counts == "with tools" and not body.get("tools"):
            usage = {"completion_tokens": 4}
        return self._answer(body, text, usage if self.counts else None)

    def _shown(self, body: Mapping[str, Any]) -> list[Any] | None:
        left_out = self.ignores or (self.kind == "sglang" and body.get("tool_choice") == "none")
        return None if left_out else body.get("tools")

    def _answer(self, body: Mapping[str, Any], text: str, usage: Any) -> Answer:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        reason = self.reason
        if self.reads and body.get("tool_choice", "auto") != "none" and "<tool_call>" in text:
            called = json.loads(text.split("<tool_call>")[1].split("</tool_call>")[0])
            function = {"name": called["name"], "arguments": json.dumps(called["arguments"])}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}  # fmt: skip
            reason = "tool_calls"
        head = {"id": "chatcmpl-t", "created": 1764000000, "model": body["model"]}
        if not body.get("stream"):
            choices = [{"index": i, "message": message, "finish_reason": reason} for i in range(body.get("n", 1))]
            return page({**head, "object": "chat.completion", "choices": choices, "usage": usage})
        pieces = [text[at : at + 3] for at in range(0, len(text), 3)] if message["content"] else []
        deltas: list[Any] = [{"content": piece} for piece in pieces]
        if "tool_calls" in message:
            deltas.append({"tool_calls": [{"index": 0, **message["tool_calls"][0]}]})
        chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        if usage is not None:
            chunks.append({"choices": [], "usage": usage})
        frames = [{**head, "object": "chat.completion.chunk", **chunk} for chunk in chunks]
        return Answer(
            [*(b"data: " + orjson.dumps(frame) + b"\n\n" for frame in frames), b"data: [DONE]\n\n"], headers=SSE
        )


def upstream(server: TemplateServer) -> Upstream:
    """That server on a socket, which says what it is."""
    script: Script = server
    up = Upstream([script])
    up.listing = KINDS[server.kind]()
    return up
