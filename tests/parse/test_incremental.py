"""Arguments that are given out while they come (R6.13)."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every, examples
from tests.options import route_options
from tests.parse.conftest import MODULES, load
from tests.parse.texts import cuts
from toolwire import open_scanner
from toolwire.errors import GatewayError, ModelFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Open
from toolwire.formats.families import hermes, sentinel
from toolwire.scan._grammar import (
    AS_TEXT,
    Block,
    BlockSyntax,
    Branch,
    Decision,
    EarlyCall,
    Field,
    FoundCall,
    Grammar,
    Why,
)
from toolwire.stream_grammar import normalise

pytestmark = pytest.mark.twin

MISTRAL = Grammar(
    syntaxes=(
        BlockSyntax(
            opener="[TOOL_CALLS]",
            body=(
                (Branch(read="word", field="name", then=1),),
                (Branch(literal="[ARGS]", read="object", field="arguments"),),
            ),
        ),
    )
)
GRAMMARS = {"hermes": hermes.GRAMMAR, "sentinel": sentinel.GRAMMAR, "mistral": MISTRAL}


class Believer:
    """Lets every call through but those named `no`, and takes well-formed bodies as they are."""

    strict = False
    unwrap = True
    callable_names: tuple[str, ...] = ()

    def may_call(self, name: str, untaught: bool) -> bool:
        return True

    def opening(self, syntax: BlockSyntax, pieces: tuple[tuple[Field, str], ...]) -> EarlyCall | None:
        name = dict(pieces)["name"].strip()
        return None if name == "no" else EarlyCall(FoundCall(name, "call_1", ""))

    def block(self, block: Block) -> Decision:
        pieces = dict(block.pieces)
        if "arguments" in pieces:
            return self.call(pieces["name"], pieces["arguments"])
        try:
            call = json.loads(block.body)
        except ValueError:
            return AS_TEXT
        arguments = call["arguments"]
        if isinstance(arguments, str):
            return self.call(call["name"], arguments)
        found = block.body[block.body.index("{", block.body.index('"arguments"')) :]
        return self.call(call["name"], found[: json.JSONDecoder().raw_decode(found)[1]])

    def call(self, name: str, arguments: str) -> Decision:
        return Decision(calls=(FoundCall(name.strip(), "call_1", arguments),))

    def broken(self, syntax: BlockSyntax, begun: str) -> None:
        pass

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        return Decision(drop=True) if why == "truncated" else AS_TEXT

    def withdrawn(self, opened: FoundCall, *, cut: bool) -> GatewayError:
        return ModelFault(f"{opened.name} was withdrawn")


def written(form: str, name: str, arguments: str, *, last: bool = False) -> str:
    """A call in a format; with `last` the name stands behind the arguments."""
    if form == "mistral":
        return f"[TOOL_CALLS]{name}[ARGS]{arguments}"
    value = json.dumps(arguments) if form == "sentinel" else arguments
    members = [f'"name": {json.dumps(name)}', f'"arguments" : {value}']
    return f"<tool_call>\n{{{', '.join(reversed(members) if last else members)}}}\n</tool_call>"


def scan(
    twin: ModuleType, form: str, pieces: list[str] | list[bytes], *, stream_after: int | None = 0, cut: bool = False
) -> list[Event]:
    scanner = twin.CallScanner(GRAMMARS[form], Believer(), stream_after=stream_after)
    events = [event for piece in pieces for event in scanner.feed(piece)]
    return [*events, *scanner.finish(truncated=cut)]


def in_deltas(text: str) -> list[str]:
    """Pieces of 1 to 8 characters."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        pieces.append(text[at : at + 1 + len(pieces) % 8])
        at += len(pieces[-1])
    return pieces


arguments = st.dictionaries(
    st.text(max_size=6),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=12),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@pytest.mark.parametrize("implementation", MODULES)
@every("form", GRAMMARS)
@examples(0.24)
@given(data=st.data(), value=arguments, ascii_only=st.booleans(), last=st.booleans())
def test_the_same_call_as_when_it_is_held_back(
    implementation: str, form: str, data: st.DataObject, value: object, ascii_only: bool, last: bool
) -> None:
    twin = load(implementation)
    text = f"a {written(form, 'f', json.dumps(value, ensure_ascii=ascii_only), last=last)} b"
    pieces = data.draw(cuts(text))
    held = scan(twin, form, pieces, stream_after=None)
    given_out = scan(twin, form, pieces)
    for event in (*held, *given_out):
        if isinstance(event, Open):
            event.extra = {}  # the source of a call that was given out is not known when it opens
    assert normalise(given_out) == normalise(held)


@every("form", GRAMMARS)
def test_arguments_come_in_many_fragments(twin: ModuleType, form: str) -> None:
    text = written(form, "f", json.dumps({"text": "word " * 2000}))
    events = scan(twin, form, in_deltas(text))
    deltas = [event for event in events if isinstance(event, Delta)]
    assert len(deltas) > 1000
    assert json.loads("".join(delta.text for delta in deltas)) == {"text": "word " * 2000}
    assert [type(event) for event in events if not isinstance(event, Delta)] == [Open, Close]


def test_nothing_is_given_out_before_the_judge_agrees(twin: ModuleType) -> None:
    scanner = twin.CallScanner(GRAMMARS["hermes"], Believer(), stream_after=0)
    assert scanner.feed('<tool_call>{"arguments": {"a": 1}, "name": "no"') == []
    assert [type(event) for event in scanner.feed("}</tool_call>")] == [Open, Delta, Close]


@every("form", GRAMMARS)
def test_a_call_that_is_cut_off_is_closed_as_truncated(twin: ModuleType, form: str) -> None:
    text = written(form, "f", '{"a": "bcd"}')[: -20 if form != "mistral" else -3]
    *_, closed = scan(twin, form, [text], cut=True)
    assert closed == Close(0, "truncated")


@every("form", GRAMMARS)
def test_what_was_sent_is_never_withdrawn(twin: ModuleType, form: str) -> None:
    """The body turns out to be malformed: the answer fails."""
    text = written(form, "f", '{"a": "b"}')
    text = text.replace("}\n</tool_call>", "]\n</tool_call>") if form != "mistral" else text.replace("}", "]")
    events = scan(twin, form, [text])
    assert isinstance(events[0], Open)
    assert isinstance(events[-1], Fault)
    assert events[-2] == Close(0, "truncated")


def test_a_second_key_of_the_same_name_fails(twin: ModuleType) -> None:
    text = '<tool_call>{"name": "write", "arguments": {"a": 1}, "arguments": {"b": 2}}</tool_call>'
    assert isinstance(judged(twin, "hermes", [text], 0)[-1], Fault)


@every("form", GRAMMARS)
def test_the_end_of_the_arguments_waits_for_the_verdict(twin: ModuleType, form: str) -> None:
    """Wherever the answer stops before the call policy has spoken, what was sent is no JSON."""
    text = written(form, "f", '{"a": {"b": "}, ,"}, "c": {}} ')
    for size in range(len(text)):
        scanner = twin.CallScanner(GRAMMARS[form], Believer(), stream_after=0)
        events = [event for char in text[:size] for event in scanner.feed(char)]
        sent = "".join(event.text for event in events if isinstance(event, Delta))
        if not any(isinstance(event, Close) for event in events):
            with pytest.raises(ValueError):
                json.loads(sent)


# --- with the gateway's policy --------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "x": {"type": ["string", "null"]}},
}
TOOL = {"type": "function", "function": {"name": "write", "parameters": SCHEMA}}
keys = st.sampled_from(["n", "s", "x", "other"])
values = st.one_of(
    st.sampled_from(["", "\n", "\n\n", "7", "null", " 1", '"', "\\", "a\nb\n", "\t\x00", "[1, {}]"]),
    st.sampled_from(["</par", "{", "[{", '{"a":1,}', "\u00e9\U0001f600"]),
    st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=8),
)
written_values = st.lists(st.tuples(keys, values), max_size=4)


def tagged(form: str, members: list[tuple[str, str]]) -> str:
    """A call with these keys, also equal ones, and values as they stand between the tags."""
    case = FORMS[form]
    return case.head + "".join(case.member.format(key, value) for key, value in members) + case.end


def has_equal_keys(members: list[tuple[str, str]]) -> bool:
    return len({key for key, _ in members}) < len(members)


class Form(NamedTuple):
    head: str
    member: str
    end: str


FORMS = {
    "qwen3_coder": Form(
        "<tool_call>\n<function=write>\n", "<parameter={}>{}</parameter>\n", "</function>\n</tool_call>"
    ),
    "glm45": Form("<tool_call>write\n", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n", "</tool_call>"),
    "glm47": Form("<tool_call>write", "<arg_key>{}</arg_key><arg_value>{}</arg_value>", "</tool_call>"),
    "seed_oss": Form(
        "<seed:tool_call>\n<function=write>\n", "<parameter={}>{}</parameter>\n", "</function>\n</seed:tool_call>"
    ),
    "minimax_m2": Form(
        '<minimax:tool_call>\n<invoke name="write">\n',
        '<parameter name="{}">{}</parameter>\n',
        "</invoke>\n</minimax:tool_call>",
    ),
    "deepseek_v32": Form(
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="write">\n',
        '<｜DSML｜parameter name="{}" string="true">{}</｜DSML｜parameter>\n',
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>",
    ),
}


def judged(
    twin: ModuleType, form: str, pieces: list[str] | list[bytes], streaming: Any, cut: bool = False
) -> list[Event]:
    options = route_options(argument_streaming=streaming, recognise="taught", coerce="off")  # see `test_live.py`
    scanner = open_scanner(form, [TOOL], options=options, scanner=twin.CallScanner)
    return [*(event for piece in pieces for event in scanner.feed(piece)), *scanner.finish(truncated=cut)]


def calls(events: list[Event]) -> list[tuple[str | None, str]]:
    """Names and arguments."""
    texts: dict[int, str] = {}
    names: dict[int, str | None] = {}
    for event in events:
        if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL:
            names[event.block] = event.name
        elif isinstance(event, Delta):
            texts[event.block] = texts.get(event.block, "") + event.text
    return [(name, texts.get(block, "")) for block, name in names.items()]


@pytest.mark.parametrize("implementation", MODULES)
@every("form", FORMS)
@examples(0.24)
@given(data=st.data(), members=written_values, missing=st.sampled_from(["", "</tool_call>", "all"]))
def test_arguments_in_tags_mean_the_same_as_when_they_are_held_back(
    implementation: str, form: str, data: st.DataObject, members: list[tuple[str, str]], missing: str
) -> None:
    """Values with line ends, escapes, of every type; closers that are missing. Of equal keys the last one wins: the one
    before it was sent, so the answer fails."""
    twin = load(implementation)
    text = tagged(form, members)
    text = text[: text.index(FORMS[form].end) if missing == "all" else len(text)].removesuffix(missing)
    pieces = data.draw(cuts(text))
    held = judged(twin, form, pieces, "buffered")
    given_out = judged(twin, form, pieces, 0)
    if isinstance(given_out[-1], Fault):
        assert calls(held) == [] or has_equal_keys(members)
        assert isinstance(given_out[-2], Close)
        assert given_out[-2].status == "truncated"
    else:
        assert calls(held) == calls(given_out)


@pytest.mark.parametrize("implementation", MODULES)
@every("form", FORMS)
@examples(0.24)
@given(data=st.data(), members=written_values, seed=st.integers(0, 10_000))
def test_a_call_in_tags_that_is_cut_off_cannot_be_read(
    implementation: str, form: str, data: st.DataObject, members: list[tuple[str, str]], seed: int
) -> None:
    text = tagged(form, members)
    text = text[: seed % len(text)]
    twin = load(implementation)
    events = judged(twin, form, data.draw(cuts(text)), 0, cut=True)
    assert has_equal_keys(members) or not any(isinstance(event, Fault) for event in events)
    whole = calls(judged(twin, form, [text], "buffered", cut=True))
    for name, value in calls(events)[len(whole) :]:
        assert name == "write"
        with pytest.raises(ValueError):
            json.loads(value)


@every(
    ("text", "arguments"),
    [
        ('{"name":"write","arguments":{"s":"a",}}', '{"s":"a"}'),
        ('{"name":"write","arguments":{"s":"a"}', '{"s":"a"}'),
        ('{"name":"write","arguments":{"s":"a" , } , }', '{"s":"a"}'),
        ('{"name":"write"}', "{}"),
    ],
)
def test_a_slip_at_the_end_is_repaired(twin: ModuleType, text: str, arguments: str) -> None:
    ((_, given_out),) = calls(judged(twin, "hermes", list(f"<tool_call>{text}</tool_call>"), 0))
    assert json.loads(given_out) == json.loads(arguments)
