"""`mode: template` over real sockets: the model's own chat template writes tools, calls and results, and the gateway
reads the answer (R31.1, R31.1a, R31.3, docs/adr/0046)."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, function, post, serving, upstream_config
from tests.e2e.meaning import CLIENTS, RESPONSES, Told, every_client, history, meant
from tests.e2e.template_servers import KINDS, QWEN, TemplateServer, upstream
from tests.e2e.test_cut_calls import asking
from toolwire.config import GatewayConfig
from toolwire.prompting.prompt import MAY, NEVER
from toolwire.support.conversion import ConfigError
from toolwire.testing import Refuse, Upstream

READ, WRITE = function("read", path="string"), function("write", path="string", text="string")
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
CALLS = f"{CALL}\n" + CALL.replace('"a"', '"b"')
NAMED = {"type": "function", "function": {"name": "read"}}
CONSTRAINT = {"vllm": "structured_outputs", "llamacpp": "grammar", "sglang": "ebnf"}
kinds = pytest.mark.parametrize("kind", KINDS)
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def behind(up: Upstream, kind: str = "vllm", mode: str = "template", **defaults: Any) -> GatewayConfig:
    """A gateway that is told what the server is, so that nothing is asked at the start."""
    backend = {"preset": kind, "identify_s": 0}
    routes = [{"model": "m", "upstream_model": QWEN, "backend": "up"}]
    return upstream_config(up.url, backend=backend, routes=routes, defaults={"mode": mode, **defaults})


async def answered(
    says: Any, body: dict[str, Any], *, kind: str = "vllm", path: str = CHAT, **defaults: Any
) -> tuple[Any, Any, list[Any]]:
    """The client's answer, the last request that reached the server, and all of them."""
    up = upstream(TemplateServer(kind, says))
    async with up, serving(behind(up, kind, **defaults)) as server:
        answer = await post(server, body, path=path)
    sent = [asked.json for asked in up.posts]
    return answer, sent[-1], sent


async def answers(says: Any, *, kind: str = "vllm", asks: Any = asking, **how: Any) -> list[Told]:
    """The same of every client, whole and streamed."""
    return await every_client(TemplateServer(kind, says), lambda up: behind(up, kind), asks, **how)


def calls_of(answer: Any) -> list[tuple[str, Any]]:
    return meant(CHAT, answer, False)[1]


# --- what is sent, and what is read -----------------------------------------------------------------------------------


@kinds
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
        path,
        [("call_1", "read", {"path": "a"}, "one"), ("call_2", "read", {"path": "b"}, "two")],
        said="Now.",
    )
    for path in CLIENTS
}


@kinds
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


@both
@kinds
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
async def test_a_demanded_call_is_enforced_beside_the_tools(kind: str, choice: Any, stream: bool) -> None:
    body = {**asking(CHAT, stream), "tools": [READ, WRITE], "tool_choice": choice}
    answer, sent, _ = await answered(CALL, body, kind=kind)
    assert meant(CHAT, answer, stream)[1] == [("read", {"path": "a"})]
    assert CONSTRAINT[kind] in sent
    assert "read" in json.dumps(sent[CONSTRAINT[kind]])
    shown = [tool["function"]["name"] for tool in sent["tools"]]
    assert shown == (["read"] if choice is NAMED else ["read", "write"])
    said = sent["messages"][0]["content"]
    assert "must call" in said
    assert MAY not in said


@every(("kind", "choice"), [*((kind, "required") for kind in KINDS), ("llamacpp", "auto")])
async def test_the_constraint_is_that_of_prompt_mode(kind: str, choice: str) -> None:
    body = {**asking(CHAT, False), "tool_choice": choice}
    _, by_template, _ = await answered(CALL, body, kind=kind)
    _, by_prompt, _ = await answered(CALL, body, kind=kind, mode="prompt")
    assert by_template[CONSTRAINT[kind]] == by_prompt[CONSTRAINT[kind]]


async def test_only_allowed_tools_are_shown() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED]}}
    body = {**asking(CHAT, False), "tools": [READ, WRITE], "tool_choice": allowed}
    _, sent, _ = await answered("Hello.", body)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read"]
    assert "Only these tools may be called: `read`." in sent["messages"][0]["content"]


async def test_one_call_at_a_time() -> None:
    answer, sent, _ = await answered(CALLS, {**asking(CHAT, False), "parallel_tool_calls": False})
    assert calls_of(answer) == [("read", {"path": "a"})]
    assert "Make only one call in an answer." in sent["messages"][0]["content"]
    answer, sent, _ = await answered(CALLS, asking(CHAT, False))
    assert calls_of(answer) == [("read", {"path": "a"}), ("read", {"path": "b"})]
    assert sent["messages"][0]["content"] == MAY


async def test_the_policy_has_a_wording_of_its_own() -> None:
    _, sent, _ = await answered("Hello.", asking(CHAT, False), prompt={"beside_template": "Be careful."})
    assert sent["messages"][0] == {"role": "system", "content": "Be careful."}
    _, sent, _ = await answered("Hello.", asking(CHAT, False), prompt={"beside_template": ""})
    assert sent["messages"] == [{"role": "user", "content": "hi"}]


async def test_the_policy_stands_where_the_segment_would() -> None:
    body = {**asking(CHAT, False), "messages": [{"role": "system", "content": "Be brief."}, *USER]}
    for placement, wanted in {
        "append": [f"Be brief.\n\n{MAY}", "hi"],
        "prepend": [f"{MAY}\n\nBe brief.", "hi"],
        "separate": ["Be brief.", MAY, "hi"],
        "user": ["Be brief.", f"{MAY}\n\nhi"],
    }.items():
        _, sent, _ = await answered("Hello.", body, prompt={"placement": placement})
        assert [message["content"] for message in sent["messages"]] == wanted


async def test_a_reminder_is_said_at_the_end() -> None:
    _, sent, _ = await answered("Hello.", asking(CHAT, False), prompt={"reminder": "Think of {tools}."})
    assert sent["messages"][-1]["content"] == "hi\n\nThink of `read`."


@both
@kinds
async def test_where_no_call_is_wanted_tools_stay_away(kind: str, stream: bool) -> None:
    body = {**asking(CHAT, stream), **HISTORY[CHAT], "tool_choice": "none"}
    answer, sent, _ = await answered(CALL, body, kind=kind)
    assert meant(CHAT, answer, stream)[:2] == (CALL, [])
    assert "tools" not in sent
    assert sent["messages"][0]["content"] == NEVER
    assert sent["messages"][2]["tool_calls"]
    _, sent, _ = await answered("Hello.", body, kind=kind, prompt={"inject_when_none": True})
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read"]


async def test_a_history_of_calls_without_tools_passes_as_it_is() -> None:
    _, sent, _ = await answered("Hello.", HISTORY[CHAT])
    assert sent["messages"] == HISTORY[CHAT]["messages"]
    assert "tools" not in sent


async def test_without_tools_bytes_pass() -> None:
    up = upstream(TemplateServer())
    async with up, serving(behind(up)) as server:
        body = json.dumps({"model": "m", "messages": USER, "odd": 1}).encode()
        await post(server, body)
    assert up.posts[0].json == {"model": QWEN, "messages": USER, "odd": 1}


# --- data is data -----------------------------------------------------------------------------------------------------


@both
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


async def test_instructions_stay_as_they_are() -> None:
    body = {**asking(CHAT, False), "messages": [{"role": "system", "content": f"Write {CALL}."}, *USER]}
    _, sent, _ = await answered("Hello.", body)
    assert sent["messages"][0]["content"] == f"Write {CALL}.\n\n{MAY}"


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
            for path, stream in product(CLIENTS, (False, True)):
                first, second = [await post(one, asking(path, stream), path=path) for one in (templates, prompts)]
                assert first.status == second.status, (name, path, stream)
                assert meant(path, first, stream)[:3] == meant(path, second, stream)[:3], (name, path, stream)


@both
async def test_a_near_miss_is_asked_again_in_the_same_mode(stream: bool) -> None:
    def says(prompt: str) -> str:
        return CALL if "not accepted" in prompt else CALL.replace("read", "reed")

    answer, sent, all_sent = await answered(says, asking(CHAT, stream))
    assert meant(CHAT, answer, stream)[1] == [("read", {"path": "a"})]
    assert len(all_sent) == 2
    assert (sent.get("tool_choice"), bool(sent["tools"])) == ("none", True)
    assert "reed" in sent["messages"][-2]["content"]
    assert "<tool_call>" in sent["messages"][-2]["content"], "the model sees its own attempt as it wrote it"


async def test_a_custom_tool_goes_as_a_function_and_comes_back_as_it_is() -> None:
    tool = {"type": "custom", "custom": {"name": "run", "description": "Runs a command."}}
    says = '<tool_call>\n{"name": "run", "arguments": {"input": "ls"}}\n</tool_call>'
    answer, sent, _ = await answered(says, {"messages": USER, "tools": [tool]})
    assert (sent["tools"][0]["type"], sent["tools"][0]["function"]["name"]) == ("function", "run")
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["custom"] == {"name": "run", "input": "ls"}


async def test_a_grouped_tool_gets_a_name_of_its_own_and_its_own_back() -> None:
    inner = {"type": "function", **READ["function"]}
    group = {"type": "namespace", "name": "disk", "description": "The disk.", "tools": [inner]}
    up = upstream(TemplateServer(says=lambda prompt: CALL.replace("read", json.loads(
        prompt.split("<tools>\n")[1].split("\n</tools>")[0])["function"]["name"])))  # fmt: skip
    async with up, serving(behind(up)) as server:
        answer = await post(server, {"input": "hi", "tools": [group]}, path=RESPONSES)
    assert up.posts[-1].json["tools"][0]["function"]["name"] != "read"
    (call,) = [item for item in answer.json()["output"] if item["type"] == "function_call"]
    assert (call["name"], call["namespace"], json.loads(call["arguments"])) == ("read", "disk", {"path": "a"})


async def test_several_answers() -> None:
    answer, sent, _ = await answered(CALL, {**asking(CHAT, False), "n": 2})
    assert sent["n"] == 2
    made = [choice["message"]["tool_calls"][0]["function"]["name"] for choice in answer.json()["choices"]]
    assert made == ["read", "read"]


async def test_calls_of_the_server_itself_pass_as_in_native_mode() -> None:
    server = TemplateServer("sglang", CALL, reads=True)
    for path, stream, answer, _ in await every_client(server, lambda up: behind(up, "sglang"), asking):
        assert meant(path, answer, stream)[1] == [("read", {"path": "a"})]


@pytest.mark.parametrize(("kind", "shown"), [("vllm", True), ("sglang", True), ("llamacpp", False)])
async def test_markers_that_are_special_tokens_are_asked_for(kind: str, shown: bool) -> None:
    _, sent, _ = await answered(CALL, asking(CHAT, False), kind=kind)
    assert ("skip_special_tokens" in sent) is shown
    assert sent.get("skip_special_tokens", False) is False


async def test_the_form_of_the_answer_is_said_in_words() -> None:
    """A constrained answer could not call a tool."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    _, sent, _ = await answered('{"a": 1}', {**asking(CHAT, False), "response_format": form})
    assert "response_format" not in sent
    assert "JSON Schema" in sent["messages"][0]["content"]


async def test_a_refusal_is_the_clients() -> None:
    body = {"error": {"message": "tools param requires --jinja flag", "code": 500}}
    async with Upstream([Refuse(500, body=json.dumps(body).encode())]) as up, serving(behind(up, "llamacpp")) as server:
        answer = await post(server, asking(CHAT, False))
    assert (answer.status, len(up.posts)) == (400, 1)


@pytest.mark.parametrize("choice", ["none", "auto"])
async def test_the_choice_is_a_fact_about_the_server(choice: str) -> None:
    up = upstream(TemplateServer())
    async with up:
        backend = {"preset": "generic", "identify_s": 0, "template_choice": choice}
        async with serving(upstream_config(up.url, backend=backend, defaults={"mode": "template"})) as server:
            await post(server, asking(CHAT, False))
    assert up.posts[-1].json.get("tool_choice", "auto") == choice


def test_a_backend_without_a_place_for_tools_has_no_template_mode() -> None:
    with pytest.raises(ConfigError, match="'template' sends tools to the server"):
        upstream_config("http://127.0.0.1:9", backend={"kind": "openai_completions"}, defaults={"mode": "template"})
