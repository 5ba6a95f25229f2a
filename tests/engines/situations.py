"""The situations: modes, choices, constraints, protocols, ends, refusals, oddities, restarts."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any, Final

import jsonschema
import orjson

from tests.engines.asking import (
    COUNT,
    HELLO,
    HISTORY,
    PATHS,
    PROTOCOLS,
    QUESTION,
    TIME,
    TOOLS,
    WEATHER,
    Ask,
    Protocol,
    misfit,
    tool,
)
from tests.engines.suite import MODES, WAYS, Broken, EngineBroken, Missing, Run, expect, situation
from tests.engines.tap import Tapped, constraint

LEVEL: Final = tool("set_level", "Set the level of the heating", level={"type": "string", "enum": ["xylo-4", "xylo-9"]})
"""A tool whose values nobody would write by himself."""
FORCE: Final = (("user", "Call the tool set_level and set the level to seven. Answer with the call only."),)
PERSON: Final = {
    "type": "object",
    "properties": {"zq_age": {"type": "integer"}, "kind": {"enum": ["aa-1", "bb-2"]}},
    "required": ["zq_age", "kind"],
    "additionalProperties": False,
}
LONG: Final = (("user", "word " * 6000),)
PIXEL: Final = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BAD_GRAMMAR: Final = "root ::= ("
GRAMMAR_FIELDS: Final[dict[str, Any]] = {
    "llamacpp": {"grammar": BAD_GRAMMAR},
    "vllm": {"structured_outputs": {"grammar": BAD_GRAMMAR}},
    "sglang": {"ebnf": BAD_GRAMMAR},
}
"""A grammar that is none, in the field of each engine."""
CALL_TOKENS: Final = 48
ENFORCING: Final = frozenset({"llamacpp", "vllm", "sglang"})


def streamed(way: str) -> bool:
    return way == "streamed"


def last(run: Run) -> Tapped:
    """The last exchange with the engine."""
    if not run.tapped:
        raise Broken("the engine was never asked")
    return run.tapped[-1]


# --- who it is ------------------------------------------------------------------------------------------------------


@situation("facts/recognised", "Engine and context are recognised from the address alone")
async def recognised(run: Run) -> str:
    lines: list[str] = []
    while not lines:  # the gateway serves before it has asked the engine
        lines = [line for line in run.gateway.log.splitlines() if 'Backend "engine" at' in line]
        await asyncio.sleep(0.2)
    line = lines[0]
    preset = re.search(r"Preset: (\w+)", line)
    expect(preset is not None and preset[1] == run.kind(), f"preset {run.kind()}; the log says {line[-300:]!r}")
    listed = (await run.get("/v1/models")).json()["data"]
    context = {one["id"]: one.get("context_length") for one in listed}["auto"]
    if context is None:
        run.fact("does not say the length of its context")
    return f"preset `{run.kind()}`, context {context or 'unknown'}"


# --- modes ----------------------------------------------------------------------------------------------------------


@situation("modes/may-call", "`mode: {mode}`: the model may call, streamed", mode=MODES)
async def may_call(run: Run, mode: str) -> str:
    seen = await run.answered(Ask(QUESTION, model=mode, tools=TOOLS, tokens=CALL_TOKENS, stream=True))
    expect("<tool_call>" not in seen.text or not seen.calls, "a call that was read is not printed")
    return str(seen)


@situation("modes/history", "`mode: {mode}`: an earlier call and its result reach the model", mode=MODES[:3])
async def history(run: Run, mode: str) -> str:
    seen = await run.answered(Ask(HISTORY, model=mode, tools=TOOLS))
    sent = orjson.dumps(last(run).body).decode()
    expect("17 degrees" in sent and "get_weather" in sent, "the engine is sent the call and its result")
    return str(seen)


# --- choices --------------------------------------------------------------------------------------------------------


@situation("choices/required", "`mode: {mode}`: a call is demanded, {way}", mode=MODES[:3], way=WAYS)
async def required(run: Run, mode: str, way: str) -> str:
    ask = Ask(QUESTION, model=mode, tools=TOOLS, choice="required", tokens=CALL_TOKENS, stream=streamed(way))
    return await demanded(run, ask)


@situation("choices/named", "One tool is demanded by its name, {protocol}", protocol=PROTOCOLS)
async def named(run: Run, protocol: Protocol) -> str:
    ask = Ask(QUESTION, protocol, tools=TOOLS, choice="get_time", tokens=CALL_TOKENS)
    return await demanded(run, ask, only=TIME.name)


async def demanded(run: Run, ask: Ask, only: str | None = None) -> str:
    """A demanded call comes, fits its schema, and no other tool is called; or a named error says why not."""
    seen = await run.ask(ask)
    sent = constraint(last(run).body)
    if seen.error is not None:
        expect(sent is None, f"an enforced call comes; the error is {seen}: {seen.error.message[:120]}")
        expect(seen.error.code or ask.protocol == "messages", "a named error")
        return f"{seen} (not enforced)"
    if not seen.calls:
        expect(seen.end == "length", f"a call, or an answer that says that it was cut; not {seen}")
        return f"{seen} (the model did not come to its call in {ask.tokens} tokens)"
    for call in seen.calls:
        expect(only in (None, call.name), f"a call of `{only}`, not of `{call.name}`")
        wrong = misfit(call, ask.tools)
        if wrong is not None and sent is not None:
            raise EngineBroken(f"does not keep to the {sent[0]} that it took: {wrong}")
    return f"{seen}{'' if sent is None else f' (enforced by `{sent[0]}`)'}"


@situation("choices/none", "`tool_choice: none`: no call")
async def none(run: Run) -> str:
    seen = await run.answered(Ask(QUESTION, tools=TOOLS, choice="none"))
    expect(not seen.calls, "no call")
    return str(seen)


@situation("choices/one", "`parallel_tool_calls: false`: one call at most")
async def one(run: Run) -> str:
    two = (("user", "What is the weather in Paris, in Rome and in Oslo?"),)
    ask = Ask(two, tools=TOOLS, choice="required", tokens=CALL_TOKENS, more={"parallel_tool_calls": False})
    seen = await run.ask(ask)
    expect(len(seen.calls) <= 1, f"one call at most, not {len(seen.calls)}")
    return str(seen)


# --- constraints ----------------------------------------------------------------------------------------------------


def must_enforce(run: Run) -> None:
    if run.kind() not in ENFORCING:
        raise Missing("the engine takes no grammar")


@situation("constraints/auto", "`mode: {mode}`: a voluntary call fits its schema, by default", mode=("prompt", "template"))  # fmt: skip
async def constrained_auto(run: Run, mode: str) -> str:
    must_enforce(run)
    seen = await run.answered(Ask(FORCE, model=mode, tools=(LEVEL,), tokens=CALL_TOKENS))
    sent = constraint(last(run).body)
    expect(sent is not None, "the engine is sent a constraint")
    assert sent is not None
    if not seen.calls:
        return f"{seen}; the model began no call"
    wrong = misfit(seen.calls[0], (LEVEL,))
    if wrong is not None:
        raise EngineBroken(f"does not keep to the {sent[0]} that it took: {wrong}")
    return f"`{seen.calls[0].arguments}` by `{sent[0]}`"


@situation("constraints/free", "The same without a constraint (`constrain_auto: off`)")
async def unconstrained(run: Run) -> str:
    seen = await run.ask(Ask(FORCE, model="free", tools=(LEVEL,), tokens=CALL_TOKENS))
    expect(run.tapped and constraint(run.tapped[0].body) is None, "the engine is sent no constraint")
    if len(run.tapped) > 1:
        return f"{seen}; retried after a near miss"
    return f"`{seen.calls[0].arguments}`" if seen.calls else str(seen)


@situation("constraints/binding", "`constrain: required`: a valid call, or 400")  # fmt: skip
async def binding(run: Run) -> str:
    ask = Ask(FORCE, model="binding", tools=(LEVEL,), choice="required", tokens=CALL_TOKENS)
    if run.kind() not in ENFORCING:
        return str(await run.refused(ask, 400, "unsupported_parameter"))
    seen = await run.answered(ask)
    expect(seen.calls or seen.end == "length", "a call")
    for call in seen.calls:
        wrong = misfit(call, (LEVEL,))
        if wrong is not None:
            raise EngineBroken(f"does not keep to the grammar that it took: {wrong}")
    return f"`{seen.calls[0].arguments}`" if seen.calls else str(seen)


@situation("constraints/schema", "`response_format: json_schema`, {way}", way=WAYS)
async def schema(run: Run, way: str) -> str:
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    seen = await run.ask(Ask(QUESTION, tokens=CALL_TOKENS, stream=streamed(way), more={"response_format": form}))
    if seen.error is not None:
        expect(seen.error.code == "output_format_not_satisfied", f"an answer that fits, or a named error; not {seen}")
        return str(seen)
    fits = _fits(seen.text, PERSON)
    if not fits and seen.end != "length":
        if "response_format" in last(run).body:
            raise EngineBroken("does not keep to the `response_format` that it took")
        raise Broken(f"an answer that fits the schema, or a named error; not {seen.text[:80]!r}")
    return f"{seen}{'' if fits else ', cut'}"


def _fits(text: str, form: Any) -> bool:
    try:
        jsonschema.validate(orjson.loads(text), form)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


@situation("constraints/object", "`response_format: json_object`")
async def json_object(run: Run) -> str:
    turns = (("user", "Give a JSON object with a name."),)
    seen = await run.ask(Ask(turns, tokens=CALL_TOKENS, more={"response_format": {"type": "json_object"}}))
    if seen.error is not None:
        expect(seen.error.code == "output_format_not_satisfied", f"a JSON object, or a named error; not {seen}")
    elif seen.end != "length" and not _fits(seen.text, {"type": "object"}):
        raise EngineBroken("does not keep to `json_object`")
    return str(seen)


@situation("constraints/client-grammar", "An invalid grammar of the client: 400, {way}", way=WAYS)
async def client_grammar(run: Run, way: str) -> str:
    must_enforce(run)
    seen = await run.ask(Ask(model="native", stream=streamed(way), more=GRAMMAR_FIELDS[run.kind()]))
    if seen.error is None and constraint(last(run).body) is not None:
        raise EngineBroken("takes a grammar that is none, and answers without it")
    expect(seen.error is not None, f"a refusal, not {seen}")
    assert seen.error is not None
    expect(seen.error.code == "upstream_rejected", f"`upstream_rejected`, not {seen}")
    expect(seen.status in (200, 400), f"400, or an error in the stream; not {seen}")
    return str(seen)


@situation("constraints/relaxed", "The engine refuses the gateway's constraint ({choice}, {way}): the request is repeated without it", choice=("required", "auto"), way=WAYS)  # fmt: skip
async def relaxed(run: Run, choice: str, way: str) -> str:
    must_enforce(run)
    odd = tool(f"look_{choice}_{way}", "Look something up", city="string")  # a constraint that it was never sent
    ask = Ask(QUESTION, model="prompt", tools=(odd,), choice=choice, tokens=CALL_TOKENS, stream=streamed(way))
    with run.tap.spoiling(_spoiled):
        seen = await run.ask(ask)
    first, *more = run.tapped
    refusal = first.error
    if refusal is None:
        raise EngineBroken("takes a grammar that is none, and answers without it")
    expect(more, f"the engine is asked again; it said {refusal[:100]}")
    expect(constraint(more[0].body) is None, "the second time without the constraint")
    if seen.error is not None:
        expect(seen.error.code == "tool_choice_not_satisfied", f"an answer, not {seen}: {seen.error.message[:100]}")
    how = "in the stream" if first.status == 200 else f"with {first.status}"
    return f"refused {how}, then {seen}"


def _spoiled(body: dict[str, Any]) -> dict[str, Any]:
    """The body with a grammar that is none in the place of its own."""
    sent = constraint(body)
    if sent is None:
        return body
    name, value = sent
    if name == "structured_outputs":
        tags = {"type": "structural_tag", "format": {"type": "nothing"}}
        broken = {"grammar": BAD_GRAMMAR} if "grammar" in value else {"structural_tag": orjson.dumps(tags).decode()}
        return {**body, name: broken}
    if name == "response_format":
        return {**body, name: {"type": "structural_tag", "format": {"type": "nothing"}}}
    return {**body, name: BAD_GRAMMAR}


# --- protocols ------------------------------------------------------------------------------------------------------


@situation("protocols/text", "{protocol}: text, {way}", protocol=PROTOCOLS, way=WAYS)
async def text(run: Run, protocol: Protocol, way: str) -> str:
    seen = await run.answered(Ask(HELLO, protocol, stream=streamed(way)))
    expect(seen.text.strip(), "text")
    expect(seen.end in ("stop", "length"), f"an end, not {seen.end!r}")
    return f"{seen}, {seen.usage and '+'.join(map(str, seen.usage))} tokens"


@situation("protocols/call", "{protocol}: a demanded call, {way}", protocol=("messages", "responses"), way=WAYS)
async def call(run: Run, protocol: Protocol, way: str) -> str:
    ask = Ask(QUESTION, protocol, tools=TOOLS, choice="required", tokens=CALL_TOKENS, stream=streamed(way))
    return await demanded(run, ask)


@situation("protocols/history", "{protocol}: an earlier call and its result", protocol=("messages", "responses"))
async def other_history(run: Run, protocol: Protocol) -> str:
    return str(await run.answered(Ask(HISTORY, protocol, tools=TOOLS)))


@situation("protocols/counted", "Messages: the tokens of a prompt are counted")
async def counted(run: Run) -> str:
    body = {key: value for key, value in Ask(QUESTION, "messages").body().items() if key in ("model", "messages")}
    answer = await run.post("/v1/messages/count_tokens", body)
    expect(answer.status == 200 and answer.json().get("input_tokens", 0) > 0, f"a count, not {answer.status}")
    return f"{answer.json()['input_tokens']} tokens"


# --- ends -----------------------------------------------------------------------------------------------------------


@situation("ends/length", "{protocol}: cut by its limit, {way}", protocol=PROTOCOLS, way=WAYS)
async def length(run: Run, protocol: Protocol, way: str) -> str:
    tokens = 16 if protocol == "responses" else 6  # the least that Responses takes
    seen = await run.answered(Ask(COUNT, protocol, tokens=tokens, stream=streamed(way)))
    if seen.end != "length" and last(run).finish() == "stop":
        run.fact("says `stop` of an answer that its limit cut")
        return str(seen)
    expect(seen.end == "length", f"the end `length`, not {seen.end!r}")
    expect(seen.usage is not None and seen.usage[1] <= tokens, f"{tokens} tokens at most, not {seen.usage}")
    return str(seen)


@situation("ends/cut-call", "A demanded call that the limit cuts is dropped, {way}", way=WAYS)
async def cut_call(run: Run, way: str) -> str:
    ask = Ask(QUESTION, model="prompt", tools=TOOLS, choice="required", tokens=9, stream=streamed(way))
    seen = await run.ask(ask)
    expect(not seen.calls, f"no call of {ask.tokens} tokens")
    expect(seen.error is not None or seen.end == "length", f"an end that says so, not {seen}")
    return str(seen)


@situation("ends/stop-sequence", "{protocol}: a stop sequence ends the text, {way}", protocol=("chat", "messages"), way=WAYS)  # fmt: skip
async def stop_sequence(run: Run, protocol: Protocol, way: str) -> str:
    seen = await run.answered(Ask(COUNT, protocol, stop=("3",), stream=streamed(way)))
    expect("3" not in seen.text, f"no stop sequence in the text; it is {seen.text[:40]!r}")
    asked = last(run)
    if asked.body.get("stop") and "3" in asked.text():
        run.fact("leaves a stop sequence in the text")
    if seen.end == "length":
        return f"{seen} (the model never wrote it)"
    if protocol == "messages":
        expect(
            (seen.end, seen.matched) == ("stop sequence", "3"),
            f"`stop_sequence` `3`, not {seen.end!r} {seen.matched!r}",
        )
    else:
        expect(seen.end == "stop", f"the end `stop`, not {seen.end!r}")
    return f"{seen}, {'applied by the engine' if asked.body.get('stop') else 'applied by the gateway'}"


@situation("ends/many-stops", "Messages: twenty stop sequences, more than some engines take")
async def many_stops(run: Run) -> str:
    seen = await run.answered(Ask(COUNT, "messages", stop=(*(f"zz{n}" for n in range(19)), "3")))
    expect("3" not in seen.text, f"the last of them counts; the text is {seen.text[:40]!r}")
    return f"{seen}; the engine was sent {len(last(run).body.get('stop') or ())}"


# --- usage ----------------------------------------------------------------------------------------------------------


@situation("usage/unasked", "Chat stream without `include_usage`: tokens are in the metrics only")  # fmt: skip
async def unasked(run: Run) -> str:
    ask = Ask(HELLO, model="prompt", tools=TOOLS, stream=True)
    before = await _completion_tokens(run)
    answer = await run.post(PATHS["chat"], {key: value for key, value in ask.body().items() if key != "stream_options"})
    frames = [frame for frame in answer.frames() if frame != "[DONE]"]
    expect(answer.status == 200 and not any(frame.get("usage") for frame in frames), "no usage in the stream")
    counted = last(run).usage()
    more = 0.0
    for _ in range(250):  # a client has its answer a little before it is counted
        more = await _completion_tokens(run) - before
        if more or counted is None:
            break
        await asyncio.sleep(0.02)
    if counted is None:
        run.fact("does not say its usage in a stream")
    expect(counted is None or more == counted[1], f"{counted} in `toolwire_tokens_total`, not {more:g}")
    return f"{more:g} tokens counted"


async def _completion_tokens(run: Run) -> float:
    page = (await run.get("/metrics")).body.decode()
    lines = [
        one for one in page.splitlines() if one.startswith("toolwire_tokens_total{") and 'direction="output"' in one
    ]
    return sum(float(one.rpartition(" ")[2]) for one in lines)


@situation("usage/same", "Usage is that of the engine, whole and streamed")
async def same_usage(run: Run) -> str:
    whole = await run.answered(Ask(model="native"))
    told = last(run).usage()
    expect(told is None or whole.usage == told, f"the usage {told}, not {whole.usage}")
    stream = await run.answered(Ask(model="native", stream=True))
    told = last(run).usage()
    if told is None:
        run.fact("does not say its usage in a stream")
    expect(told is None or stream.usage == told, f"the usage {told}, not {stream.usage}")
    return f"{whole.usage}, streamed {stream.usage}"


# --- refusals -------------------------------------------------------------------------------------------------------


@situation("refusals/context", "{protocol}: a prompt beyond the context, {way}", protocol=PROTOCOLS, way=WAYS)
async def context(run: Run, protocol: Protocol, way: str) -> str:
    if run.kind() == "transformers":
        raise Missing("the engine has no limit but the model's 32768 tokens, which would take it half an hour")
    seen = await run.refused(Ask(LONG, protocol, stream=streamed(way)), 400, "context_length_exceeded")
    assert seen.error is not None
    if protocol == "messages":
        expect(
            "prompt is too long" in seen.error.message, f"the words `prompt is too long`, not {seen.error.message!r}"
        )
    return f"{seen}: {seen.error.message[:90]}"


@situation("refusals/most-tokens", "`max_tokens` beyond the context is lowered")
async def most_tokens(run: Run) -> str:
    seen = await run.answered(Ask((("user", "Say hello in one word, nothing else."),), tokens=100_000))
    return (
        f"{seen}; the engine was sent {last(run).body.get('max_tokens') or last(run).body.get('max_completion_tokens')}"
    )


@situation("refusals/image", "An image for a model without vision, {protocol}", protocol=PROTOCOLS)
async def image(run: Run, protocol: Protocol) -> str:
    words = "What is in this picture?"
    url = f"data:image/png;base64,{PIXEL}"
    content: list[dict[str, Any]]
    match protocol:
        case "chat":
            content = [{"type": "text", "text": words}, {"type": "image_url", "image_url": {"url": url}}]
        case "messages":
            source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
            content = [{"type": "text", "text": words}, {"type": "image", "source": source}]
        case "responses":
            content = [{"type": "input_text", "text": words}, {"type": "input_image", "image_url": url}]
    seen = await run.answered(Ask((("user", content),), protocol))
    refused = [one.status for one in run.tapped if one.error]
    return f"{seen}{f'; the engine refused it first ({refused[0]})' if refused else ''}"


@situation("refusals/role", "An unknown role: 400")
async def role(run: Run) -> str:
    return str(await run.refused(Ask((("king", "x"),)), 400, "invalid_value"))


@situation("refusals/sampling", "A temperature that is a word: 400")
async def sampling(run: Run) -> str:
    return str(await run.refused(Ask(more={"temperature": "hot"}), 400, "invalid_type"))


@situation("refusals/negative", "A temperature below zero: 400")
async def negative(run: Run) -> str:
    seen = await run.ask(Ask(model="native", more={"temperature": -1}))
    if seen.error is None:
        expect(last(run).body.get("temperature") == -1, "the engine is sent what the client said")
        raise EngineBroken("takes a temperature below zero")
    expect(seen.status == 400, f"400, not {seen}")
    return str(seen)


@situation("refusals/top-p", "`top_p: 2` is lowered, or 400")
async def top_p(run: Run) -> str:
    seen = await run.ask(Ask(more={"top_p": 2}))
    expect(seen.error is None or seen.status == 400, f"an answer or 400, not {seen}")
    return f"{seen}; the engine was sent {last(run).body.get('top_p')}" if run.tapped else str(seen)


@situation("refusals/no-route", "A model that the gateway does not have: 404")
async def no_route(run: Run) -> str:
    return str(await run.refused(Ask(model="nothing"), 404, "model_not_found"))


@situation("refusals/no-model", "A model that the engine does not have: 404, {way}", way=WAYS)
async def no_model(run: Run, way: str) -> str:
    seen = await run.ask(Ask(model="nowhere", stream=streamed(way)))
    if seen.error is None:
        raise EngineBroken("answers to any model's name")
    if last(run).status not in (404, 400):
        raise EngineBroken(
            f"answers {last(run).status} to the name of a model that it does not have; the client got {seen}"
        )
    expect((seen.status, seen.error.code) == (404, "model_not_found"), f"404 `model_not_found`, not {seen}")
    return str(seen)


@situation("refusals/json", "A body that is no JSON: 400")
async def malformed(run: Run) -> str:
    answer = await run.post(PATHS["chat"], b'{"model": "auto", "messages": [')
    expect((answer.status, answer.json()["error"]["code"]) == (400, "invalid_json"), f"400, not {answer.status}")
    expect(not run.tapped, "the engine is not asked")
    return f"{answer.status}, error `{answer.json()['error']['code']}`"


# --- oddities -------------------------------------------------------------------------------------------------------


@situation("oddities/roles", "A developer message, and a system message behind others")
async def roles(run: Run) -> str:
    turns = (("developer", "Be brief."), *HELLO, ("assistant", "Hello."), ("system", "Be kind."), ("user", "Thanks."))
    return str(await run.answered(Ask(turns)))


@situation(
    "oddities/arguments", "An earlier call whose arguments are broken, `mode: {mode}`", mode=("native", "prompt")
)
async def arguments(run: Run, mode: str) -> str:
    turns = (*QUESTION, ("call", "get_weather", '{"city": Par'), ("result", "no such city"), ("user", "And now?"))
    return str(await run.answered(Ask(turns, model=mode, tools=TOOLS)))


@situation("oddities/schema", "A tool with an invalid schema beside a valid one")
async def odd_schema(run: Run) -> str:
    odd = replace(WEATHER, name="odd", parameters={"type": "objekt", "properties": 7})
    seen = await run.ask(Ask(QUESTION, tools=(TIME, odd), choice="get_time", tokens=CALL_TOKENS))
    expect(seen.error is None or seen.status == 400, f"an answer or 400, not {seen}")
    return str(seen)


@situation("oddities/names", "A tool name of 100 characters is preserved")
async def odd_names(run: Run) -> str:
    long = replace(WEATHER, name="get_weather_" + "x" * 88)
    ask = Ask(QUESTION, "responses", tools=(long,), choice="required", tokens=120)
    seen = await run.ask(ask)
    expect(seen.error is None or seen.error.code, f"a named error, not {seen}")
    return "a call by its own name" if seen.calls else str(seen)


@situation("oddities/two", "Two choices (`n: 2`), or one where the server takes no more")
async def two_answers(run: Run) -> str:
    answer = await run.post(PATHS["chat"], Ask(model="native", tokens=4, more={"n": 2, "temperature": 1}).body())
    if answer.status == 200:
        got, sent = len(answer.json()["choices"]), last(run).body.get("n", 1)
        gave = len(last(run).values()[0]["choices"])
        if got == gave < sent:
            raise EngineBroken(f"gives {gave} of the {sent} choices that it is asked for")
        expect(got == sent, f"{sent} choices, as the engine was asked for; not {got}")
        return f"200, {got} of 2 choices; the engine was sent `n: {sent}`"
    expect(answer.status in (400, 501), f"a named error, not {answer.status}")
    return f"{answer.status}, error `{answer.json()['error']['code']}`"
