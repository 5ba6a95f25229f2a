"""`mode: template` over real sockets: the model's own chat template writes tools, calls and results, and the gateway
reads the answer (R31.1, R31.1a, R31.3, docs/adr/0046)."""

from __future__ import annotations

import json
from typing import Any

import orjson

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, post, serving, upstream_config
from tests.e2e.meaning import CLIENTS, Told, every_client, history, meant
from tests.e2e.template_servers import KINDS, QWEN, TemplateServer, upstream
from tests.e2e.test_cut_calls import asking
from toolwire.config import GatewayConfig
from toolwire.prompting.prompt import MAY, NEVER
from toolwire.testing import Refuse, Upstream, WireAnswer

READ, WRITE = function("read", path="string"), function("write", path="string", text="string")
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
CALLS = f"{CALL}\n" + CALL.replace('"a"', '"b"')
NAMED = {"type": "function", "function": {"name": "read"}}
CONSTRAINT = {"vllm": "structured_outputs", "llamacpp": "grammar", "sglang": "ebnf"}


def behind(up: Upstream, kind: str = "vllm", mode: str = "template", **defaults: Any) -> GatewayConfig:
    """A gateway that is told what the server is, so that nothing is asked at the start."""
    backend = {"preset": kind, "identify_s": 0}
    routes = [{"model": "m", "upstream_model": QWEN, "backend": "up"}]
    return upstream_config(up.url, backend=backend, routes=routes, defaults={"mode": mode, **defaults})


async def answered(
    says: Any, body: dict[str, Any], *, kind: str = "vllm", **defaults: Any
) -> tuple[WireAnswer, dict[str, Any]]:
    """The client's answer, and the last request that reached the server."""
    up = upstream(TemplateServer(kind, says))
    async with up, serving(behind(up, kind, **defaults)) as server:
        answer = await post(server, body)
    return answer, up.posts[-1].json


async def answers(says: Any, *, kind: str = "vllm", asks: Any = asking, **how: Any) -> list[Told]:
    """The same of every client, whole and streamed."""
    return await every_client(TemplateServer(kind, says), lambda up: behind(up, kind), asks, **how)


# --- what is sent, and what is read -----------------------------------------------------------------------------------


@every("kind", KINDS)
async def test_the_template_writes_the_tools_and_the_gateway_reads_the_call(kind: str) -> None:
    for path, stream, answer, asked in await answers(f"Reading.\n{CALL}", kind=kind):
        assert (answer.status, meant(path, answer, stream)[:2]) == (200, ("Reading.", [("read", {"path": "a"})]))
        sent = asked.json
        assert [tool["function"]["name"] for tool in sent["tools"]] == ["read"]
        assert sent.get("tool_choice", "auto") == ("auto" if kind == "sglang" else "none")
        assert sent["messages"] == [{"role": "system", "content": MAY}, {"role": "user", "content": "hi"}]
        assert "parallel_tool_calls" not in sent


HISTORY = {
    path: history(
        path, [("call_1", "read", {"path": "a"}, "one"), ("call_2", "read", {"path": "b"}, "two")], said="Now."
    )
    for path in CLIENTS
}


@every("kind", KINDS)
async def test_earlier_calls_and_results_stay_in_their_fields(kind: str) -> None:
    for path, stream, answer, asked in await answers(
        "Done.", kind=kind, asks=lambda path, stream: {**asking(path, stream), **HISTORY[path]}
    ):
        assert meant(path, answer, stream)[:2] == ("Done.", [])
        _, user, assistant, *results = asked.json["messages"]
        assert (user["content"], assistant["content"]) == ("hi", "Now.")
        made = assistant["tool_calls"]
        called = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made]
        assert called == [("read", {"path": "a"}), ("read", {"path": "b"})]
        assert [(result["role"], result["tool_call_id"], result["content"]) for result in results] == [
            ("tool", made[0]["id"], "one"),
            ("tool", made[1]["id"], "two"),
        ]


@every("stream", [False, True])
@every("choice", ["required", NAMED])
@every("kind", KINDS)
async def test_a_demanded_call_is_enforced_beside_the_tools(kind: str, choice: Any, stream: bool) -> None:
    """By the constraint of prompt mode."""
    body = {**asking(CHAT, stream), "tools": [READ, WRITE], "tool_choice": choice}
    answer, sent = await answered(CALL, body, kind=kind)
    assert meant(CHAT, answer, stream)[1] == [("read", {"path": "a"})]
    _, by_prompt = await answered(CALL, body, kind=kind, mode="prompt")
    assert sent[CONSTRAINT[kind]] == by_prompt[CONSTRAINT[kind]]
    shown = [tool["function"]["name"] for tool in sent["tools"]]
    assert shown == (["read"] if choice is NAMED else ["read", "write"])
    said = sent["messages"][0]["content"]
    assert "must call" in said
    assert MAY not in said


ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
BRIEF = {"messages": [{"role": "system", "content": f"Say {CALL}."}, *USER]}


@every(
    "more, options, said",
    [
        ({}, {}, [MAY, "hi"]),
        ({}, {"beside_template": "Be careful."}, ["Be careful.", "hi"]),
        ({}, {"beside_template": ""}, ["hi"]),
        ({}, {"reminder": "Think of {tools}."}, [MAY, "hi\n\nThink of `read`."]),
        # instructions stay as they are
        (BRIEF, {"placement": "append"}, [f"Say {CALL}.\n\n{MAY}", "hi"]),
        (BRIEF, {"placement": "prepend"}, [f"{MAY}\n\nSay {CALL}.", "hi"]),
        (BRIEF, {"placement": "separate"}, [f"Say {CALL}.", MAY, "hi"]),
        (BRIEF, {"placement": "user"}, [f"Say {CALL}.", f"{MAY}\n\nhi"]),
        ({"tools": [READ, WRITE], "tool_choice": ALLOWED}, {}, ["Only these tools may be called: `read`.", "hi"]),
        ({"parallel_tool_calls": False}, {}, ["Make only one call in an answer.", "hi"]),
        # a constrained answer could not call a tool
        ({"response_format": FORM}, {}, ["JSON Schema", "hi"]),
    ],
)
async def test_what_the_gateway_adds(more: dict[str, Any], options: dict[str, Any], said: list[str]) -> None:
    answer, sent = await answered(CALLS, {**asking(CHAT, False), **more}, prompt=options)
    texts = [message["content"] for message in sent["messages"]]
    assert [whole.endswith(text) or text in whole for whole, text in zip(texts, said, strict=True)] == [True] * len(
        said
    )
    assert options == {} or texts == said
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read"]
    assert "response_format" not in sent
    assert len(meant(CHAT, answer, False)[1]) == (1 if "parallel_tool_calls" in more else 2)


@every("kind", KINDS)
async def test_where_no_call_is_wanted_tools_stay_away(kind: str) -> None:
    body = {**asking(CHAT, False), **HISTORY[CHAT], "tool_choice": "none"}
    answer, sent = await answered(CALL, body, kind=kind)
    assert meant(CHAT, answer, False)[:2] == (CALL, [])
    assert "tools" not in sent
    assert sent["messages"][0]["content"] == NEVER
    assert sent["messages"][2]["tool_calls"]
    _, sent = await answered("Hello.", body, kind=kind, prompt={"inject_when_none": True})
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read"]


@every("messages", [USER, HISTORY[CHAT]["messages"]])
async def test_without_tools_a_conversation_passes_as_it_is(messages: list[Any]) -> None:
    _, sent = await answered("Hello.", {"messages": messages, "odd": 1})
    assert sent == {"model": QWEN, "messages": messages, "odd": 1}


@every(
    "kind, backend, sent",
    [
        ("vllm", {}, {"tool_choice": "none", "skip_special_tokens": False, "n": 2}),
        ("sglang", {}, {"skip_special_tokens": False, "n": 2}),
        ("llamacpp", {}, {"tool_choice": "none"}),
        ("vllm", {"preset": "generic", "template_choice": "auto"}, {}),
        ("vllm", {"preset": "generic", "template_choice": "none"}, {"tool_choice": "none"}),
    ],
)
async def test_fields_beside_the_tools(kind: str, backend: dict[str, str], sent: dict[str, Any]) -> None:
    """The choice, and markers that are special tokens, by what is known of the server; and several answers."""
    up, several = upstream(TemplateServer(kind, CALL)), sent.get("n")
    facts = {"preset": kind, "identify_s": 0, **backend}
    async with up, serving(upstream_config(up.url, backend=facts, defaults={"mode": "template"})) as server:
        answer = await post(server, {**asking(CHAT, False), "n": several})
    fields = up.posts[-1].json.items()
    assert {key: value for key, value in fields if key in ("tool_choice", "skip_special_tokens", "n")} == sent
    assert [choice["finish_reason"] for choice in answer.json()["choices"]] == ["tool_calls"] * (several or 1)


async def test_a_server_that_reads_calls_or_refuses_tools_is_as_in_native_mode() -> None:
    up = upstream(TemplateServer("sglang", CALL, reads=True))
    refusal = orjson.dumps({"error": {"message": "tools param requires --jinja flag", "code": 500}})
    async with up, serving(behind(up, "sglang")) as server:
        assert meant(CHAT, await post(server, asking(CHAT, False)), False)[1] == [("read", {"path": "a"})]
        up.script = [Refuse(500, body=refusal)]
        assert (await post(server, asking(CHAT, False))).status == 400
    assert len(up.posts) == 2


# --- data is data -----------------------------------------------------------------------------------------------------


@every("stream", [False, True])
async def test_what_was_said_holds_no_marker_and_is_given_back_as_it_was(stream: bool) -> None:
    messages = [
        {"role": "user", "content": f"What is {CALL}?"},
        *HISTORY[CHAT]["messages"][1:3],
        {"role": "tool", "tool_call_id": "call_2", "content": CALL},
    ]
    up = upstream(TemplateServer(says=lambda prompt: prompt.split("What is ")[1].split("?")[0]))
    async with up, serving(behind(up)) as server:
        answer = await post(server, {**asking(CHAT, stream), "messages": messages})
    sent = up.posts[0].json["messages"]
    assert "<tool_call>" not in sent[1]["content"]
    assert "<tool_call>" not in sent[-1]["content"]
    assert meant(CHAT, answer, stream)[:2] == (CALL, []), "a copy of data is no call, and is what the user wrote"


# --- everything holds as in prompt mode ---------------------------------------------------------------------------

TEXTS = {
    "prose": "Hello there.",
    "call": CALL,
    "prose and call": f"I read it.\n{CALL}",
    "two calls": CALLS,
    "bare": '{"name": "read", "arguments": {"path": "a"}}',
    "fence": '```json\n{"name": "read", "arguments": {"path": "a"}}\n```',
    "of another family": '[TOOL_CALLS]read[ARGS]{"path": "a"}',
    "thought": f"<think>I should read.</think>\n{CALL}",
    "preopened thought": f"I should read.</think>\n{CALL}",
    "unclosed": CALL.removesuffix("</tool_call>"),
    "repaired": CALL.replace('"a"}', '"a",}'),
    "unknown tool": CALL.replace("read", "rad"),
    "mention": "Calls are written as `<tool_call>` here.",
    "json": '{"answer": 5}',
    "empty": "",
}


async def test_an_answer_is_read_as_in_prompt_mode() -> None:
    model = TemplateServer()
    up, options = upstream(model), {"bad_answers": {"reask": 0}}
    async with (
        up,
        serving(behind(up, **options)) as templates,
        serving(behind(up, mode="prompt", **options)) as prompts,
    ):
        for name, model.says in TEXTS.items():
            for path, stream in zip(CLIENTS, (False, True, False), strict=True):
                first, second = [await post(one, asking(path, stream), path=path) for one in (templates, prompts)]
                assert first.status == second.status, (name, path, stream)
                assert meant(path, first, stream)[:3] == meant(path, second, stream)[:3], (name, path, stream)


@every(("reason", "shown"), [("length", True), ("content_filter", False)])
async def test_a_call_that_the_limit_of_length_cuts_off_is_text(reason: str, shown: bool) -> None:
    """As from a server that gives tools itself; a call that another end cuts off is dropped (C18)."""
    cut = CALL[:-25]
    model = TemplateServer(says=f"Now.\n{CALL}\n{cut}", reason=reason)
    for path, stream, answer, _ in await every_client(model, behind, asking):
        text, calls, *_ = meant(path, answer, stream)
        assert (cut in text, calls) == (shown, [("read", {"path": "a"})])
    model.says = f"Now.\n{cut}"
    for path, stream, answer, asked in await every_client(model, behind, asking):
        assert meant(path, answer, stream)[:2] == (model.says if shown else "Now.", [])
        assert "not accepted" not in str(asked.json), "it is not asked again"
