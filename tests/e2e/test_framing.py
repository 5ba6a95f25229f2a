"""Markup around what a model says is no part of the answer, also where no tool can be called; everything else passes as
it is (R1.6, R1.7)."""

from __future__ import annotations

from typing import Any

from aiohttp.test_utils import TestServer

from tests.cases import every
from tests.e2e.conftest import CHAT, USER, Gateway, function, gateway_before, post, upstream_config
from tests.e2e.meaning import RESPONSES, said
from toolwire.registry import registries
from toolwire.startup.description import describe
from toolwire.testing import Say, Upstream

READ = function("read_file", path="string")
CALL = {"id": "x1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
RESULT = {"role": "tool", "tool_call_id": "x1", "content": "ok"}
WITHOUT: dict[str, dict[str, Any]] = {
    "no tools": {},
    "tool_choice none": {"tools": [READ], "tool_choice": "none"},
    "tools in the history": {"messages": [*USER, {"role": "assistant", "content": None, "tool_calls": [CALL]}, RESULT]},
}
SAID = {
    "harmony": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
    "llm_jp": "<|channel|> analysis<|message|>Hm.<|end|><|start|> assistant<|channel|> final<|message|>Hello.<|return|>",
    "beam": "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>",
    "cohere": "<|START_THINKING|>Hm.<|END_THINKING|><|START_TEXT|>Hello.<|END_TEXT|>",
    "ernie": "<think>Hm.</think><response>Hello.</response>",
    "hunyuan": "<think>Hm.</think>\n<answer>\nHello.\n</answer>",
    "kimi_k3": "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Hello.<|close|>response<|sep|><|end_of_msg|>",
    "inkling": "<|content_thinking|>Hm.<|end_message|><|message_model|><|content_text|>Hello.<|end_message|>",
    "muse": " to=self<|message|>Hm.<|eom|><|start|>assistant to=user<|message|>Hello.<|eot|>",
    "apriel": "Here are my reasoning steps:\nHm.[BEGIN FINAL RESPONSE]Hello.[END FINAL RESPONSE]<|end|>",
    "hyperclovax": "/think\nHm.<|im_end|><|im_start|>assistant\nHello.<|im_end|>",
    "functionary": "<think>Hm.</think>\n>>>all\nHello.",
    "gigachat35": "<think>Hm.</think>Hello.<|message_sep|></s>",
    "gigachat": "<think>Hm.</think>Hello.<|message_sep|></s>",
}


def test_every_format_that_frames_is_here() -> None:
    every = (registries().formats.get(name) for name in registries().formats.names())
    assert {format.name for format in every if format.framing is not None} == set(SAID)


@every("name", SAID)
def test_framing_reads_no_call(name: str) -> None:
    format = registries().formats.get(name)
    assert format.framing is not None
    for syntax in format.framing.syntaxes:
        assert not any(branch.field for node in syntax.nodes for branch in node)
        assert not syntax.opener or syntax.opener in {other.opener for other in format.grammar.syntaxes}


@every("name", SAID)
async def test_it_vanishes(name: str) -> None:
    async with gateway_before([Say(SAID[name])], defaults={"format": name}) as (server, _):
        for without in WITHOUT.values():
            await check(server, ("Hm.", "Hello."), **without)


async def test_the_name_of_the_model_is_enough() -> None:
    async with gateway_before([Say(SAID["harmony"])], defaults={"format": "auto"}) as (server, _):
        await check(server, ("Hm.", "Hello."), model="gpt-oss-20b")
        for stream in (False, True):
            body = {"model": "gpt-oss-20b", "input": "hi", "stream": stream}
            assert said(RESPONSES, await post(server, body, path=RESPONSES), stream) == ("Hello.", [], "Hm.")


@every("name", ["auto", "hermes", "kimi_k2"])
async def test_other_formats_give_the_text_as_it_is(name: str) -> None:
    async with gateway_before(defaults={"format": name}) as (server, upstream):
        for text in (SAID["harmony"], SAID["ernie"], '<tool_call>{"name":"read_file"}</tool_call>'):
            upstream.script = [Say(text)]
            for without in WITHOUT.values():
                await check(server, ("", text), **without)


async def test_blocks_are_ordinary_text(gateway: Gateway) -> None:
    """Text that looks like a call is text then (R1.7)."""
    text = '<|channel|>commentary to=functions.read_file <|constrain|>json<|message|>{"path":"a"}<|call|>'
    async with Upstream([Say(text)]) as upstream:
        await check(await gateway(upstream_config(upstream.url, defaults={"format": "harmony"})), ("", text))


async def check(server: TestServer, wanted: tuple[str, str], **fields: Any) -> None:
    """Asserts the reasoning and the text, whole and streamed, without a call."""
    for stream in (False, True):
        answer = await post(server, {"messages": USER, **fields, "stream": stream})
        assert answer.status == 200, answer.body
        text, calls, thought = said(CHAT, answer, stream)
        assert ((thought, text), calls) == (wanted, []), stream


# --- markers that are special tokens --------------------------------------------------------------------------------


@every(
    "preset, name, body, sent",
    [
        ("vllm", "mistral", {"tools": [READ]}, False),
        ("sglang", "kimi_k2", {"tools": [READ]}, False),
        ("vllm", "auto", {"tools": [READ]}, False),
        ("vllm", "mistral", {"tools": [READ], "skip_special_tokens": True}, True),
        ("vllm", "kimi_k3", WITHOUT["tool_choice none"], False),
        ("vllm", "mistral", WITHOUT["tool_choice none"], None),
        ("vllm", "harmony", {}, None),
        ("vllm", "sentinel", {"tools": [READ]}, None),
        ("vllm", "bare_json", {"tools": [READ]}, None),
        ("llamacpp", "mistral", {"tools": [READ]}, None),
        ("generic", "mistral", {"tools": [READ]}, None),
    ],
)
async def test_a_server_is_told_to_show_special_tokens(
    gateway: Gateway, preset: str, name: str, body: dict[str, Any], sent: bool | None
) -> None:
    """Where they are looked for, unless the client says itself what it wants."""
    async with Upstream([Say("ok")]) as upstream:
        config = upstream_config(upstream.url, backend={"preset": preset}, defaults={"format": name})
        assert (await post(await gateway(config), {"messages": USER, **body})).status == 200
        assert upstream.requests[-1].json.get("skip_special_tokens") is sent


@every(
    "options, model, noted",
    [
        ({"format": "mistral"}, "m", True),
        ({"format": "auto"}, "kimi-k2", True),
        ({"format": "auto"}, "m", False),
        ({"format": "hermes"}, "m", False),
        ({"format": "mistral", "mode": "native"}, "m", False),
    ],
)
@every("preset", ["llamacpp", "vllm"])
def test_check_says_what_llama_cpp_leaves_out(options: dict[str, str], model: str, noted: bool, preset: str) -> None:
    routes = [{"model": model, "backend": "up", "options": options}]
    config = upstream_config("http://127.0.0.1:1", backend={"preset": preset}, routes=routes)
    assert ("--special" in describe(config, registries())) is (noted and preset == "llamacpp")
