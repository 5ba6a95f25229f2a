"""The shipped cases, and files of users."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import toolwire.extras.tune
from tests.cases import every
from toolwire.extras.tune.cases import load_cases, own_cases, read_cases, spread
from toolwire.extras.tune.scoring import ClientAnswer, ClientCall, score_answer
from toolwire.support.conversion import ConfigError

FOLDER = Path(toolwire.extras.tune.__file__).parent
TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}
CASE: dict[str, Any] = {
    "id": "one",
    "topic": "t",
    "ask": "Hi",
    "tools": [TOOL],
    "calls": [{"name": "f", "arguments": {"a": 1}}],
}

# What a perfect model would call, by rule: a value that the rule takes.
EXAMPLES = {
    "multiply": {"expression": "4827 * 391"},
    "read-config": {"path": "./config/app.yaml"},
    "list-folder": {"path": "src"},
    "phones": {
        "changes": {"phones": [{"kind": "work", "number": "030 4440"}, {"kind": "mobile", "number": "0171 5550"}]}
    },
    "write-python": {
        "path": "hello.py",
        "content": "def greet(name):\n    return 'Hello, ' + name\nprint(greet('World'))",
    },
    "write-html": {
        "path": "index.html",
        "content": "<title>Garden</title><h1>Tomatoes</h1><li>sow<li>water<li>harvest",
    },
    "write-json": {"path": "settings.json", "content": '{"theme": "dark", "size": 14}'},
    "then-read": {"path": "notes.md"},
    "after-error": {"path": "reports"},
    "event-date": {"title": "Budget", "start": "2026-03-14T09:30", "minutes": 45},
    "boolean": {"restaurant": "Luigi's", "people": 4, "time": "19:30", "outside": True},
}


def value_of(rule: Any) -> Any:
    """A value that fits an expectation without a pattern."""
    if isinstance(rule, list):
        return [value_of(item) for item in rule]
    if not isinstance(rule, dict):
        return rule
    match next(iter(rule.items()), (None, None)):
        case "$any", [first, *_]:
            return value_of(first)
        case "$contains", texts:
            return " and ".join(texts) if isinstance(texts, list) else texts
        case "$near", [value, _]:
            return value
        case "$set", items:
            return [value_of(item) for item in items]
        case "$exact", value:
            return value
    return {key: value_of(item) for key, item in rule.items()}


def test_there_are_enough_of_every_topic() -> None:
    cases = own_cases()
    assert len(cases) >= 60
    topics = Counter(case.topic for case in cases)
    assert min(topics.values()) >= 6
    assert {case.topic for case in cases[: len(topics)]} == set(topics), "the first few hold every topic"
    for case in cases:
        if case.topic == "none needed":
            assert not case.calls
        assert case.turns == (2 if case.topic == "two turns" else 1)
    assert any(len(case.calls) > 1 for case in cases)
    assert sum(not case.calls for case in cases) >= 10


@every("case", own_cases())
def test_a_perfect_answer_gets_all_points_and_silence_does_not(case: Any) -> None:
    made = []
    for call in case.calls:
        schema = case.schemas[call.names[0]]
        free = {key: "x" for key in schema.get("required", ()) if key not in call.arguments}
        arguments = EXAMPLES.get(case.id) or {**free, **value_of(call.arguments)}
        jsonschema.validate(arguments, schema)
        made.append(ClientCall(call.names[0], json.dumps(arguments)))
    text = {"answer-sum": "1,887,357", "answer-weather": "Snow, at -4 degrees.", "answer-order": "On Friday."}
    assert score_answer(case, ClientAnswer(tuple(reversed(made)), text.get(case.id, ""))).points == 1
    if case.calls:
        assert score_answer(case, ClientAnswer(text="I would call a tool.")).points == 0
        assert score_answer(case, ClientAnswer(tuple(made) * 2)).points < 1
    else:
        name = next(iter(case.schemas))
        assert score_answer(case, ClientAnswer((ClientCall(name, "{}"),))).points == 0


def test_the_shipped_file_fits_the_shipped_schema_by_another_judge() -> None:
    schema = json.loads((FOLDER / "cases.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads((FOLDER / "cases.json").read_text("utf-8")), schema)


def test_topics_are_spread_and_keep_their_order() -> None:
    def ids(*topics: tuple[str, int]) -> list[str]:
        given = [{**CASE, "id": f"{topic}{n}", "topic": topic} for topic, count in topics for n in range(count)]
        return [case.id for case in read_cases({"cases": given}, "x")]

    assert ids(("a", 4), ("b", 2)) == ["a0", "b0", "a1", "a2", "b1", "a3"]
    assert ids(("a", 3)) == ["a0", "a1", "a2"]
    assert spread(()) == ()


@pytest.mark.parametrize(
    "text",
    [json.dumps({"cases": [CASE]}), "cases:\n- {id: one, topic: t, ask: Hi, tools: [{name: f}], calls: [{name: f}]}\n"],
)
def test_a_file_is_json_or_yaml(tmp_path: Path, text: str) -> None:
    file = tmp_path / ("c.json" if text.startswith("{") else "c.yaml")
    file.write_text(text, "utf-8")
    (case,) = load_cases(file)
    assert (case.id, case.messages, case.turns) == ("one", ({"role": "user", "content": "Hi"},), 1)
    assert list(case.schemas) == ["f"]


def test_earlier_calls_and_results_may_be_written_as_json() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "tool_calls": [{"id": "c", "name": "f", "arguments": {"a": 1}}]},
        {"role": "tool", "tool_call_id": "c", "content": {"ok": [1]}},
    ]
    given = {**CASE, "messages": messages}
    del given["ask"]
    (case,) = read_cases({"cases": [given]}, "x")
    assert case.turns == 2
    assert case.messages[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a":1}'}
    assert case.messages[2]["content"] == '{"ok":[1]}'


def changed(**fields: Any) -> dict[str, Any]:
    return {"cases": [{**CASE, **fields}]}


@every(
    ("document", "message"),
    [
        ([], "the document: "),
        ({"cases": []}, "cases: "),
        ({"case": [CASE]}, "'case' was unexpected"),
        (changed(id="A b"), "cases[0].id: "),
        (changed(expect=1), "'expect' was unexpected"),
        ({"cases": [CASE, CASE]}, "cases[1]: the id 'one' is taken by cases[0]"),
        (changed(messages=[{"role": "user", "content": "x"}]), "cases[0]: give either `ask` or `messages`"),
        ({"cases": [{k: v for k, v in CASE.items() if k != "ask"}]}, "cases[0]: give either `ask` or `messages`"),
        (changed(tools=["g"]), "cases[0].tools[0]: no tool 'g'"),
        (changed(tools=[{"name": "g h"}]), "cases[0].tools[0]: 'g h' cannot be a tool's name"),
        (changed(tools=[{**TOOL, "parameters": {"type": "strin"}}]), "cases[0].tools[0].parameters: "),
        (changed(tools=[TOOL, TOOL]), "cases[0].tools: a tool is there twice"),
        (changed(calls=[{"name": "g"}]), "cases[0].calls[0]: no tool 'g' is on offer"),
        (changed(calls=[{"name": "f", "arguments": {"b": 1}}]), "cases[0].calls[0].arguments.b: f has no such argument"),
        (changed(calls=[{"name": "f", "arguments": {"a": {"$nea": 1}}}]), "arguments.a: unknown rule $nea"),
        (changed(says={"$matches": "("}), "cases[0].says: $matches: not a regular expression"),
        (
            {"cases": [{k: v for k, v in CASE.items() if k != "ask"} | {"messages": [{"role": "user", "content": [1]}]}]},
            "cases[0].messages[0].content[0]: ",
        ),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place(document: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_cases(document, "mine.yaml")
    assert str(error.value).startswith("mine.yaml: ")
    assert message in str(error.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        read_cases({"cases": [{**CASE, "tools": ["g"]}, {**CASE, "calls": [{"name": "h"}]}]}, "x")
    assert len(error.value.problems) >= 3


@pytest.mark.parametrize(("name", "text"), [("a.json", "{"), ("b.yaml", "a: ["), ("none.json", None)])
def test_a_file_that_cannot_be_read_is_told_by_its_name(tmp_path: Path, name: str, text: str | None) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=name):
        load_cases(tmp_path / name)
