"""Why an exchange with tools has a call, or has none: one sentence, from the decisions of the gateway (R35.4)."""

from __future__ import annotations

from typing import Any

from tests.cases import every
from tests.e2e.conftest import CHAT, function
from tests.inspector.inspected import CALL, WEATHER, answering, asked, call, seen, whole
from toolwire.config import DEFAULT_CHAIN
from toolwire.extras.capture.files import read_capture
from toolwire.testing import Refuse, Say, Script

ADD = function("add", a="integer", b={"type": "array", "items": {"type": "string"}})
STRICT = function("weather", strict=True, city="string")
MISSPELLED = CALL.replace("weather", "wether")
NAMELESS = 'No call: The model called the tool "wether", which is not on offer'
BROKEN = '<tool_call>{"name": "weather", "arguments": {"city": }}</tool_call>'
LOOSE = "<weather>\n<city>Paris</city>\n</weather>"
BEGUN = '<tool_call>{"name": "weather", "arguments": {"ci'
OWN = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": "x"}'}}
ONCE: dict[str, Any] = {"defaults": {"bad_answers": {"reask": 0}}}


CUT_BEFORE = "No call: the answer was cut before it called a tool (length)."

NATIVE: dict[str, Any] = {"defaults": {"mode": "native", "bad_answers": {"reask": 0}}}
OWN_CALL = whole({"content": None, "tool_calls": [OWN]}, finish="tool_calls")
MISTRAL = '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}}]'
DENIED = [{"use": "tool_filter", "options": {"deny": ["add"]}}, *DEFAULT_CHAIN]
THOUGHT = 'No call: The call of "weather" is in reasoning that has no end.'
CLOSED = 'No call: The call of "weather" is in the reasoning, which is only searched with `reasoning.scan_calls`.'
NOT_TRIED = "No call: the model answered with text and never tried to call a tool."
THINKING = whole({"content": None, "reasoning_content": f"I call it. {CALL}"})
LOST = "No call: the connection to the server was lost"
UNREAD = "No call: The model's tool call cannot be read: "
MISFIT = 'Called "add", but the call of "add" does not fit its schema: '


def body(**fields: Any) -> dict[str, Any]:
    """What the client asks besides."""
    return {"body": fields}


TABLE: list[tuple[str, str, Script, Any, dict[str, Any]]] = [
    ('Called "weather".', "called", Say(CALL), WEATHER, {}),
    ('Called "weather", after a repair.', "repaired", Say(CALL.replace("}}", ",}}")), WEATHER, {}),
    (
        'Called "weather", read in a form that was not taught.',
        *("recovered", Say(MISTRAL), WEATHER, {"defaults": {"format": "sentinel"}}),
    ),
    (
        'Called "weather", recovered from a damaged or unknown form.',
        *("recovered", Say(f"I look.\n{LOOSE}"), WEATHER, {}),
    ),
    (NOT_TRIED, "none", Say("It is warm."), WEATHER, {}),
    ("No call: the model wrote only reasoning.", "none", Say("<think>Hm.</think>"), WEATHER, {}),
    ("No call: the answer is empty.", "none", Say(""), WEATHER, {}),
    (
        "No call: The model did not call a tool, as `tool_choice` demands.",
        *("demanded", Say("It is warm."), WEATHER, ONCE | body(tool_choice="required")),
    ),
    ("No call: `tool_choice` is `none`.", "unwanted", Say("It is warm."), WEATHER, body(tool_choice="none")),
    (f"{NAMELESS}.", "attempted", Say(MISSPELLED), WEATHER, ONCE),
    (UNREAD, "attempted", Say(BROKEN), WEATHER, ONCE),
    (UNREAD, "attempted", Say(BROKEN), STRICT, ONCE),
    (MISFIT, "misfit", Say(call("add", {"a": "x"})), ADD, ONCE),
    (MISFIT, "misfit", OWN_CALL, ADD, NATIVE | body(stream=False)),
    (
        'No call: The model called the tool "add", which `tool_filter` denies.',
        *("denied", OWN_CALL, WEATHER, NATIVE | body(stream=False) | {"chain": DENIED}),
    ),
    (THOUGHT, "in_reasoning", THINKING, WEATHER, ONCE | body(stream=False)),
    (THOUGHT, "in_reasoning", Say(f"<think>I call it. {CALL}"), WEATHER, {}),
    (CLOSED, "in_reasoning", Say(f"<think>I call it. {CALL}</think>It is warm."), WEATHER, {}),
    (CLOSED, "in_reasoning", Say(f"<think>{CALL}</think>It is warm."), WEATHER, body(stream=False)),
    (NOT_TRIED, "none", Say(f"<think>{CALL} No.</think>It is warm."), WEATHER, {}),
    ("No call: the answer was cut inside a call (length).", "cut", Say(BEGUN, finish="length"), WEATHER, ONCE),
    (CUT_BEFORE, "cut", Say("I will now", finish="length"), WEATHER, ONCE),
    (
        f"{LOST} inside a call: The model server closed the connection (upstream_disconnected).",
        *("lost", Say(f"I look. {BEGUN}", cut=True), WEATHER, ONCE),
    ),
    (f"{LOST}: ", "lost", Say("I", cut=True), WEATHER, ONCE),
    (
        "No call: the gateway refused the request: ",
        *("refused", Say("-"), WEATHER, body(tool_choice={"type": "function", "function": {"name": "wether"}})),
    ),
    (
        "No call: the server refused the request with status 400: no (upstream_rejected).",
        *("upstream", Refuse(400, "no"), WEATHER, {}),
    ),
]
"""Sentence, kind of verdict, what the server does, the tool on offer, and more."""


@every(("words", "verdict", "turn", "tool", "more"), TABLE)
async def test_the_sentence(words: str, verdict: str, turn: Script, tool: Any, more: dict[str, Any]) -> None:
    """It is recorded when the exchange ends, so the list, the page and a file have the same one."""
    async with answering(turn, **{key: value for key, value in more.items() if key != "body"}) as (gateway, _):
        _, view = await gateway.ask(asked(CHAT, tool, **{"stream": True, **more.get("body", {})}))
        row = (await gateway.rows())[0]
    said = view["why"]
    assert said == words or (not words.endswith(".") and said.startswith(words) and said.endswith(".")), said
    assert (row["why"], row["verdict"]) == (said, verdict)
    assert (row["called"] is None) == (not said.startswith("Called"))


async def test_a_native_answer_that_was_cut() -> None:
    """Its bytes pass through, and its finish reason is noted all the same."""
    for stream in (True, False):
        turn = Say("I will now", finish="length") if stream else whole({"content": "I will now"}, finish="length")
        _, view = await seen(turn, WEATHER, body={"stream": stream}, **NATIVE)
        assert (view["verdict"], view["why"]) == ("cut", CUT_BEFORE)


async def test_without_tools_only_a_failure_has_a_sentence() -> None:
    _, view = await seen(Refuse(400, "no"))
    assert view["why"] == "The server refused the request with status 400: no (upstream_rejected)."
    _, view = await seen(Say(CALL))
    assert view["why"] is None


REJECTED = ", after 1 rejected answer"


@every(
    ("turn", "choice", "words"),
    [
        (Say(CALL), "auto", f'Called "weather"{REJECTED}: The model called the tool "wether"'),
        (Say("It is warm."), "auto", f"No call: the model answered with text{REJECTED}: The model called"),
        (Say("No."), "required", f"as `tool_choice` demands{REJECTED}: The model called"),
        (Say(MISSPELLED), "auto", f"{NAMELESS}{REJECTED}."),
    ],
)
async def test_an_answer_that_was_rejected_before(turn: Script, choice: str, words: str) -> None:
    async with answering(Say(MISSPELLED), turn) as (gateway, _):
        _, view = await gateway.ask(asked(CHAT, WEATHER, stream=True, tool_choice=choice))
    assert words in view["why"]


async def test_recorded_decisions_say_where_the_block_stands() -> None:
    """In bytes of the text of the answer, whatever reads it came in."""
    pieces = ["Grüße \U0001f680 ", MISSPELLED[:20], f"{MISSPELLED[20:]} und ", CALL]
    async with answering(Say(*pieces), **ONCE) as (gateway, _):
        await gateway.ask(asked(CHAT, WEATHER, stream=True))
        got = await gateway.fetch("GET", "/inspect/api/exchanges/r1/capture")
    entries = [entry for entry in read_capture(got.body).entries if entry.kind == "decision"]
    text = "".join(pieces).encode()
    places = [(one.fields["decided"], text[one.fields["start"] : one.fields["end"]].decode()) for one in entries[:2]]
    assert places == [("refused", MISSPELLED), ("found", CALL)]
    assert [(one.call, one.fields["decided"], one.fields.get("name")) for one in entries[2:]] == [
        (1, "made", "weather")
    ]
