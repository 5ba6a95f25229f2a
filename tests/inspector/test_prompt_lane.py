"""The prompt as the model got it, and the author of each part."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.e2e.conftest import CHAT, function
from tests.e2e.meaning import history, says
from tests.inspector.inspected import CALL, MESSAGES, RESPONSES, WEATHER, View, answering, asked
from toolwire.extras.inspector.prompt import COMPARED_CHARS, _Finder
from toolwire.model import Text
from toolwire.testing import Asked, Say

SYSTEM = "You are a forecaster in a bad mood."
QUESTION = "What is the weather in Paris today?"
RAIN = "It rains cats and dogs."
MORE = "And in Rome, if I may ask?"
ADD = function("add", a="integer")


def prompt(view: View, number: int = 1) -> list[tuple[str, list[tuple[str, str]]]]:
    """Role and pieces of each message; a piece is its kind and its text, whatever tools its lines name."""

    def joined(spans: list[dict[str, Any]]) -> list[tuple[str, str]]:
        runs = groupby(spans, key=lambda span: str(span["kind"]))
        return [(kind, "".join(span["text"] for span in run)) for kind, run in runs]

    messages = view["rounds"][number - 1]["prompt"]["messages"]
    return [(message["role"], joined(message["spans"])) for message in messages]


def texts(view: View) -> list[tuple[str, str]]:
    return [(role, "".join(text for _, text in pieces)) for role, pieces in prompt(view)]


def whose(view: View, kind: str) -> list[str]:
    """What is of this kind, all messages."""
    return [text for _, pieces in prompt(view) for own, text in pieces if own == kind]


def of(asked_: Asked) -> list[tuple[str, str]]:
    """Role and text of each message that the server got, whichever protocol it speaks."""
    body = asked_.json
    if "prompt" in body:
        return [("", body["prompt"])]
    found = []
    if isinstance(body.get("system"), str):
        found.append(("system", body["system"]))
    elif body.get("system"):
        found.append(("system", "".join(part["text"] for part in body["system"])))
    if body.get("instructions"):
        found.append(("system", body["instructions"]))
    for message in body.get("messages") or body.get("input"):
        content = message.get("content")
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())
        found.append((message["role"], text))
    return found


def conversation(path: str) -> dict[str, Any]:
    """A conversation in which a tool was called."""
    body = history(path, [("call_1", "weather", {"city": "Paris"}, RAIN)])
    items = body["input" if path == RESPONSES else "messages"]
    items[0]["content"] = QUESTION
    if path == MESSAGES:
        items[-1]["content"].append({"type": "text", "text": MORE})
        return {"system": SYSTEM, **body}
    items.append({"role": "user", "content": MORE})
    if path == RESPONSES:
        return {"instructions": SYSTEM, **body}
    return {"messages": [{"role": "system", "content": SYSTEM}, *items]}


async def shown(
    body: dict[str, Any], path: str = CHAT, *, answer: Any = None, backend: Any = None, **sections: Any
) -> tuple[View, Asked]:
    """The view of an exchange, and what the server really got."""
    async with answering(answer or Say("x"), backend=backend, **sections) as (gateway, upstream):
        got, view = await gateway.ask(body, path)
        assert got.status == 200, got.body
        return view, upstream.posts[0]


async def test_what_the_client_said_and_what_was_injected() -> None:
    body = asked(CHAT, WEATHER)
    body["messages"] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    view, got = await shown(body)
    assert texts(view) == of(got)
    (system, pieces), user = prompt(view)
    assert user == ("user", [("client", QUESTION)])
    assert system == "system"
    assert [kind for kind, _ in pieces] == ["client", "injected"]
    assert pieces[0][1] == SYSTEM
    assert "weather" in pieces[1][1]
    spans = view["rounds"][0]["prompt"]["messages"][0]["spans"]
    assert [span["text"].count("\n") for span in spans if span["tools"] == ["weather"]] == [1], "the line of the tool"
    assert [span["tools"] for span in spans if span["tools"]] == [["weather"]]


async def test_every_tool_that_is_named() -> None:
    view, _ = await shown(asked(CHAT, WEATHER, ADD))
    spans = view["rounds"][0]["prompt"]["messages"][0]["spans"]
    assert [span["tools"] for span in spans if span["tools"]] == [["weather"], ["add"]]


async def test_without_tools_all_is_the_clients() -> None:
    body = asked(text=QUESTION)
    view, got = await shown({**body, "temperature": 0.5})
    assert prompt(view) == [("user", [("client", QUESTION)])]
    assert texts(view) == of(got)
    assert view["rounds"][0]["prompt"]["parameters"] == {"model": "m", "temperature": 0.5}


@every("path", [CHAT, RESPONSES, MESSAGES])
async def test_calls_and_results_of_earlier_turns(path: str) -> None:
    body = {**asked(path, WEATHER), **conversation(path)}
    view, got = await shown(body, path)
    assert texts(view) == of(got)
    client = whose(view, "client")
    assert any(SYSTEM in text for text in client)
    assert QUESTION in client
    assert any(MORE in text for text in client)
    past = whose(view, "history")
    assert any("Paris" in text and "weather" in text for text in past), prompt(view)
    assert any(RAIN in text for text in past), prompt(view)
    (taught,) = whose(view, "injected")
    assert "Does weather." in taught or path == MESSAGES
    assert not any("cats and dogs" in text for text in [taught, *client])


async def test_what_was_escaped() -> None:
    """Markers in what the client says are not the model's own."""
    said = f"Look at this, please, what my model wrote yesterday in the morning: {CALL} and tell me why."
    view, got = await shown(asked(CHAT, WEATHER, text=said))
    assert texts(view) == of(got)
    pieces = prompt(view)[-1][1]
    assert "".join(text for _, text in pieces) != said, "it was escaped"
    assert {kind for kind, _ in pieces} == {"client", "escaped"}
    client = "".join(text for kind, text in pieces if kind == "client")
    assert client.startswith("Look at this, please")
    assert client.endswith("and tell me why.")
    escaped = "".join(text for kind, text in pieces if kind == "escaped")
    assert 0 < len(escaped) < len(CALL)


async def test_one_text_for_a_server_of_completions() -> None:
    body = asked(CHAT, WEATHER)
    body["messages"] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
    backend = {"kind": "openai_completions", "template": "chatml"}
    view, got = await shown(body, answer=says("openai_completions", Text(f"So. {CALL}")), backend=backend)
    assert texts(view) == of(got)
    ((role, pieces),) = prompt(view)
    assert role == ""
    assert [text for kind, text in pieces if kind == "client"] == [SYSTEM, QUESTION]
    assert any("<|im_start|>" in text for kind, text in pieces if kind == "injected")
    raw = view["rounds"][0]["raw"]
    assert raw["text"] == f"So. {CALL}"
    assert [span["kind"] for span in raw["spans"]] == ["text", "markup", "call"]


@every("kind", ["openai_responses", "anthropic_messages"])
@every("path", [CHAT, RESPONSES, MESSAGES])
async def test_servers_of_other_protocols(kind: str, path: str) -> None:
    body = {**asked(path, WEATHER), **conversation(path)}
    view, got = await shown(body, path, answer=says(kind, Text(f"So. {CALL}")), backend={"kind": kind})
    assert texts(view) == of(got)
    assert QUESTION in whose(view, "client")
    assert any(RAIN in text for text in whose(view, "history")), prompt(view)
    assert any("<tool_call>" in text for text in whose(view, "injected"))
    assert [span["kind"] for span in view["rounds"][0]["raw"]["spans"]] == ["text", "markup", "call"]
    assert [call["name"] for call in view["calls"]] == ["weather"]


async def test_a_server_that_does_tools_is_given_them() -> None:
    body = {**asked(CHAT, WEATHER), **conversation(CHAT), "tool_choice": "auto"}
    view, _ = await shown(body, defaults={"mode": "native"})
    seen = view["rounds"][0]["prompt"]
    assert seen["tools"] == ["weather"]
    assert seen["parameters"]["tool_choice"] == "auto"
    assert whose(view, "injected") == []
    assert QUESTION in whose(view, "client")
    assert any("weather" in text and "Paris" in text for text in whose(view, "history")), prompt(view)


WORDS = st.sampled_from(["a word ", "<tool_call>", "\n\n", "another one", "x", "&lt;", "ü\U0001f680", "Paris is nice "])
SAID = st.lists(WORDS, max_size=8).map("".join)


@given(st.lists(SAID, min_size=1, max_size=4), st.lists(SAID, max_size=4))
def test_pieces_are_the_whole_text_in_order(sent: list[str], said: list[str]) -> None:
    for text in ["".join(sent), *sent, *said]:
        assert "".join(piece for piece, _ in _Finder(said).marked(text)) == text


@given(SAID.filter(bool), SAID, SAID)
def test_what_was_said_is_the_clients_wherever_it_stands(said: str, before: str, after: str) -> None:
    whole = f"{before}{said}, and that is it, dear friend{after}"
    mine = f"{said}, and that is it, dear friend"
    assert (mine, "client") in list(_Finder([mine]).marked(whole)) or mine in before


def test_a_very_long_text_is_not_compared() -> None:
    long = "word " * COMPARED_CHARS
    assert list(_Finder([long + "y"]).marked(long + "x")) == [(long + "x", "injected")]
