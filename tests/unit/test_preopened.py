"""Thinking that nothing opened: where a closing tag ends it, what the answer is then, and what the route learns."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.cases import every
from tests.options import route_options
from tests.strategies import cuts
from toolwire.config import LimitsConfig, ReasoningConfig
from toolwire.errors import BackendFault
from toolwire.events import BlockKind, Close, Delta, Event, Fault, Finish, Open, Start
from toolwire.folding import fold
from toolwire.formats.base import ToolFormat
from toolwire.model import (
    Constraint,
    Message,
    ModelReply,
    ModelRequest,
    Part,
    Reasoning,
    ReplyChoice,
    Sampling,
    Text,
    ToolChoice,
    ToolSpec,
    ToolUse,
)
from toolwire.pipeline.scanning.offered_tools import OfferedTools
from toolwire.pipeline.scanning.preopened import (
    MAX_LEARNED,
    Pair,
    PreopenedMemory,
    PreopenedReasoning,
    closes_thoughts,
    kind_of,
    pairs_of,
)
from toolwire.pipeline.scanning.scan_stage import ScanStage
from toolwire.record import AccessRecord
from toolwire.registry import registries
from toolwire.stream_grammar import check

START = Start("id", "m", 1)
THINK = ("<think>", "</think>")
MISTRAL = ("[THINK]", "[/THINK]")
CALL = '<tool_call>{"name":"f","arguments":"{}"}</tool_call>'
TOOLS = (ToolSpec("f"), ToolSpec("write", parameters={"type": "object", "properties": {"text": {"type": "string"}}}))
FORMATS = registries().formats


# --- which closing tag ends thoughts ---------------------------------------------------------------------------------

SHOWN = "Hm.\n</think>\n\nHello!"
ENDS_THOUGHTS = [
    "I should say hello.\n</think>\n\nHello!",  # DeepSeek R1, QwQ, Qwen3
    "I should say hello.\n</think>\nhello",
    "I should say hello.\n</think> Hello!",
    "I should say hello.</think>Hello!",  # DeepSeek V3.1, GLM
    "I should say hello. </think>\n\nHello!",
    "I should say hello</think>Hello!",
    'They said "hi".</think>"Hi" it is.',
    "</think>\n\nHello!",  # it did not think
    "```\nstays open\n</think>\n\nDo\n```sh\nls\n```",
    f"Now I call it.\n</think>\n\n{CALL}",
]
MENTIONS = [
    "Write `a</think>b` there.",
    "It ends with </think>.",
    "It is called “a</think>b” here.",
    "It is **</think>** here.",
    "</think> is the tag that ends it.",
    "As follows:\n```\nHm.\n</think>\nHello!\n```\n",
    "As follows:\n~~~xml\nHm.\n</think>\n\nHello!\n~~~\nDone.",
    "As follows:\n\n    Hm.\n    </think>\n\nThat is all.",
    "1. </think>\n2. and more",
    '{"text": "Hm.\\n</think>\\n\\nHello", "more": 1}',
    '{\n  "a": 1,\n  "text": "Hm.</think>Hello"\n}',
    "{'text': 'Hm.</think>Hello'}",
    "Hm.\n</think>\n",  # nothing would be left to read
    "</think>",
]


@every("text", ENDS_THOUGHTS)
def test_a_closing_tag_where_models_write_it_ends_thoughts(text: str) -> None:
    assert closes_thoughts(text, [THINK]) == THINK
    assert closes_thoughts(text.replace("</think>", "[/THINK]"), [THINK, MISTRAL]) == MISTRAL


def test_the_first_tag_that_counts_says_which_pair_it_is() -> None:
    text = "It is `</think>`.\n[/THINK]\nHello\n</think>\n\nmore"
    for pairs, pair in (([THINK, MISTRAL], MISTRAL), ([THINK], THINK), ([], None)):
        assert closes_thoughts(text, pairs) == pair


@every("name", FORMATS.names())
def test_tags_that_end_calls_or_any_message_say_nothing_of_thoughts(name: str) -> None:
    grammar = FORMATS.get(name).grammar
    pairs = pairs_of(grammar, ReasoningConfig())
    closers = {closer for _, closer in pairs}
    assert THINK in pairs
    assert not closers & {"<|end|>", "<|im_end|>", "<|end_message|>", "<|eom|>"}
    assert not closers & {syntax.closer for syntax in grammar.syntaxes}


@every("explicit", [True, False])
def test_what_the_configuration_says_binds(explicit: bool) -> None:
    assert pairs_of(FORMATS.get("sentinel").grammar, ReasoningConfig(preopened=explicit)) == ()
    assert pairs_of(FORMATS.get("sentinel").grammar, ReasoningConfig(tags=None)) == ()


# --- one answer -----------------------------------------------------------------------------------------------------


class Known:
    """What a route knows, and one answer after the other on it."""

    def __init__(self, form: str = "sentinel", tools: tuple[ToolSpec, ...] = TOOLS, **options: Any) -> None:
        self.form: ToolFormat = FORMATS.get(form)
        self.pairs = pairs_of(self.form.grammar, ReasoningConfig())
        self.tools = tools
        self.options = route_options(**options)
        self.learned = PreopenedMemory()
        self.record = AccessRecord()

    def stage(
        self,
        *,
        whole: bool,
        request: ModelRequest | None = None,
        learns: bool = True,
        server: str | None = "up",
        **limits: int,
    ) -> ScanStage:
        source = None if server is None else (server, request or ModelRequest("m", ()))
        preopened = PreopenedReasoning("r", self.learned, lambda: source, self.record, whole=whole)
        return ScanStage(
            OfferedTools(self.tools, ToolChoice(), True, self.form, self.tools),
            self.options,
            LimitsConfig(**limits),
            self.record.count,
            label=self.record.label,
            preopened=preopened if learns else None,
        )

    def whole(self, *parts: Text | Reasoning | str, reason: str = "stop", **more: Any) -> tuple[Part, ...]:
        """What a client gets in one piece."""
        stage = self.stage(whole=True, **more)
        out = stage.feed([START])
        for block, part in enumerate(parts):
            kind = BlockKind.REASONING if isinstance(part, Reasoning) else BlockKind.TEXT
            text = part if isinstance(part, str) else part.text
            out += stage.feed([Open(block, kind), Delta(block, text), Close(block)])
        return _parts(out + stage.feed([Finish(reason)]))

    def stream(self, *pieces: str, reason: str = "stop", **more: Any) -> tuple[Part, ...]:
        """What a client gets piece by piece."""
        stage = self.stage(whole=False, **more)
        out = stage.feed([START, Open(0, BlockKind.TEXT)])
        for piece in pieces:
            out += stage.feed([Delta(0, piece)])
        return _parts(out + stage.feed([Close(0), Finish(reason)]))

    def put(self) -> None:
        """The route knows of a server that opens thoughts itself."""
        self.learned.put(kind_of("", "up", ModelRequest("m", ())), THINK)

    @property
    def counted(self) -> Counter[str]:
        return Counter({label: n for (name, label), n in self.record.labelled.items() if name == "unopened_reasoning"})


def learned(form: str = "sentinel", tools: tuple[ToolSpec, ...] = TOOLS, **options: Any) -> Known:
    """A route that has shown one answer as it came, and learned from it."""
    known = Known(form, tools, **options)
    known.stream(SHOWN)
    assert known.counted == {"shown": 1}
    return known


def _parts(events: list[Event]) -> tuple[Part, ...]:
    check(events)
    return tuple(_plain(part) for part in fold(events).choices[0].parts)


def _plain(part: Part) -> Part:
    return ToolUse("", part.name, part.arguments) if isinstance(part, ToolUse) else part


def plain(text: str, form: str = "sentinel", tools: tuple[ToolSpec, ...] = TOOLS) -> tuple[Part, ...]:
    """What comes of a text where nothing is learned."""
    return Known(form, tools).stream(text, learns=False)


WORDS = ["Hm.", " ", "\n", "\n\n", "</think>", "[/THINK]", "<think>", "`", "```\n", "a b", '"', CALL, "<tool", "word"]
PIECES = st.lists(st.sampled_from([*WORDS, "\n</think>\n\n"]) | st.text(max_size=3), max_size=8).map("".join)
Route = tuple[str, tuple[ToolSpec, ...]]
ROUTES = st.sampled_from([*((form, TOOLS) for form in ("sentinel", "hermes", "mistral", "auto")), ("sentinel", ())])


@given(ROUTES, PIECES, st.sampled_from(["\n</think>\n\n", "</think>", "\n[/THINK]\n"]), PIECES)
def test_law_a_whole_answer_is_what_it_is_with_the_opening_tag_in_front(
    route: Route, thought: str, closer: str, rest: str
) -> None:
    text = thought + closer + rest
    known = Known(*route)
    got = known.whole(text)
    openers = [opener for opener in ("", *(opener for opener, _ in known.pairs)) if got == plain(opener + text, *route)]
    assert openers, "it is the text, or the text with an opening tag in front"
    if known.counted:
        assert known.counted == {"moved": 1}
        assert any(openers)
    else:
        assert got == plain(text, *route)


@given(ROUTES, st.data())
def test_law_a_stream_after_that_is_that_of_a_preopened_route(route: Route, data: st.DataObject) -> None:
    known = learned(*route)
    text = data.draw(PIECES) + "</think>" + data.draw(PIECES)
    assume(not text.lstrip(" \t\r\n").startswith(tuple(opener for opener, _ in known.pairs)))
    if known.pairs[0] != THINK:  # such an option begins in the format's own
        wanted = Known(*route).stream("<think>", text, learns=False)
    else:
        wanted = Known(*route, reasoning=ReasoningConfig(tags=THINK, preopened=True)).stream(text)
    assert known.stream(*data.draw(cuts(text))) == wanted
    assert known.whole(text) == wanted
    assert known.counted == {"shown": 1, "known": 2}


@given(ROUTES, PIECES, st.data())
def test_law_what_was_learned_takes_no_answer_away(route: Route, text: str, data: st.DataObject) -> None:
    """Without a closing tag a whole answer is what it always was; of a stream that comes behind what was taken for
    thoughts."""
    assume("</think>" not in text and "[/THINK]" not in text)
    known = Known(*route)
    known.put()
    expected = plain(text, *route)
    assert known.whole(text) == expected
    known.put()
    got = known.stream(*data.draw(cuts(text)))
    if got and isinstance(got[0], Reasoning) and got != expected:
        assert got[0].text.strip(" \t\r\n") == text.strip(" \t\r\n") or "<" in text
        got = got[1:]
    assert got == expected
    if text.strip(" \t\r\n"):
        assert known.whole("Hi") == known.stream("Hi") == (Text("Hi"),), "and it is forgotten"


@given(
    st.sampled_from(
        [
            *ENDS_THOUGHTS,
            *MENTIONS,
            "</think> is a tag.\nHm.\n</think>\n\nHello!",
            "</think>\n</think>\n\nHello!",
            *(" " * n + "</think>\n\nHello!" for n in (247, 248, 255, 256, 300)),
            " " * 100 + "</think>" + "\n" * 200 + "Hello!",
            " " * 250 + "<think>Hm.</think>Hello!",
        ]
    ),
    st.booleans(),
    st.data(),
)
def test_law_cuts_mean_nothing(text: str, learned: bool, data: st.DataObject) -> None:
    one, other = Known(), Known()
    if learned:
        for known in (one, other):
            known.put()
    assert one.stream(*data.draw(cuts(text))) == other.stream(text)
    assert one.counted == other.counted


IN_ARGUMENTS = [
    ("sentinel", '<tool_call>{"name":"write","arguments":{"text":"Hm.\\n</think>\\n\\nHello"}}</tool_call>'),
    ("sentinel", '<tool_call>{"name":"write","arguments":{"text":"Hm.</think>Hello"}}</tool_call>'),
    ("qwen_xml", "<tool_call>\n<function=write>\n<parameter=text>\nHm.\n</think>\n\nHello\n</parameter>\n</function>\n</tool_call>"),
]  # fmt: skip


@every("text", MENTIONS)
def test_a_closing_tag_that_is_mentioned_ends_nothing(text: str) -> None:
    assert closes_thoughts(text, [THINK, MISTRAL]) is None
    known = Known()
    assert known.whole(text) == known.stream(text) == plain(text)
    assert not known.counted
    assert not known.learned


def test_a_stream_that_has_shown_nothing_yet_is_put_right() -> None:
    for pieces in (["\n", "</th", "ink>", "\n\nHello!"], ["</think>\n\nHello!"], [*"\n</think>\n\nHello!"]):
        known = Known()
        assert known.stream(*pieces) == (Text("Hello!"),)
        assert known.counted == {"moved": 1}
    known = Known()
    assert known.stream("</think>", " is", " a tag.") == (Text("</think> is a tag."),)
    assert known.stream("</thin", "g>") == (Text("</thing>"),)
    assert known.stream("</think>", "\n") == plain("</think>\n")
    assert not known.counted


def test_a_call_before_the_closing_tag_is_a_thought() -> None:
    text = f"I could {CALL}\n</think>\n\nHello!"
    thought = (Reasoning(f"I could {CALL}\n"), Text("Hello!"))
    assert Known().whole(text) == thought
    known = Known()
    call = ToolUse("", "f", "{}")
    assert known.stream(text)[:2] == (Text("I could"), call), "a stream has given it out"
    assert known.stream(text) == thought
    inside = Known(reasoning=ReasoningConfig(scan_calls=True))
    assert inside.whole(text) == (Reasoning("I could "), call, Text("Hello!"))
    assert Known().whole(f"Now.\n</think>\n\n{CALL}") == (Reasoning("Now.\n"), call)


@every(("form", "call"), IN_ARGUMENTS)
def test_a_tag_in_the_arguments_of_a_call_is_data(form: str, call: str) -> None:
    for text in (call, f"I write it.\n{call}", f"I write it.\n{call}\nDone."):
        known = Known(form)
        (found,) = (part for part in known.whole(text) if isinstance(part, ToolUse))
        assert "</think>" in found.arguments
        assert known.whole(text) == known.stream(text) == plain(text, form)
        assert not known.counted


def test_what_the_server_has_set_apart_is_not_set_apart_again() -> None:
    known = Known()
    assert known.whole(Reasoning("Hm."), "One.\n</think>\n\nTwo.") == (Reasoning("Hm."), Text("One.\n</think>\n\nTwo."))
    known.whole(SHOWN)
    stage = known.stage(whole=False)
    events = [Open(0, BlockKind.REASONING), Delta(0, "Hm."), Close(0), Open(1, BlockKind.TEXT), Delta(1, "Hi")]
    out = stage.feed([START, *events, Close(1), Finish()])
    assert _parts(out) == (Reasoning("Hm."), Text("Hi"))


@every("whole", [True, False])
def test_a_call_that_the_server_has_set_apart_is_something_to_read(whole: bool) -> None:
    known = Known()
    call = [Open(1, BlockKind.TOOL_CALL, name="f", call_id="c"), Delta(1, "{}"), Close(1)]
    text = [Open(0, BlockKind.TEXT), Delta(0, "Hm.\n</think>\n\n"), Close(0)]
    out = known.stage(whole=whole).feed([START, *text, *call, Finish("tool_calls")])
    assert known.counted == {"moved" if whole else "shown": 1}
    assert not whole or _parts(out) == (Reasoning("Hm.\n"), ToolUse("", "f", "{}"))


def test_each_choice_begins_where_it_begins() -> None:
    events: list[Event] = [START]
    for block, text in enumerate([SHOWN, "Hello!"]):
        events += [Open(block, BlockKind.TEXT, choice=block), Delta(block, text), Close(block)]
    out = Known().stage(whole=True).feed([*events, Finish("stop", others=("stop",))])
    assert [choice.parts for choice in fold(out).choices] == [(Reasoning("Hm.\n"), Text("Hello!")), (Text("Hello!"),)]


def test_a_whole_answer_that_broke_off_says_nothing() -> None:
    known = Known()
    broken = [Open(0, BlockKind.TEXT), Delta(0, SHOWN[:-3]), Fault(BackendFault("gone"))]
    out = known.stage(whole=True).feed([START, *broken])
    assert "".join(event.text for event in out if isinstance(event, Delta)) == SHOWN[:-3]
    assert not known.learned


def test_a_framing_word_that_ends_thoughts_counts_where_its_opener_is_in_the_prompt() -> None:
    known = Known("apriel")
    got = known.whole("Hm.\n[BEGIN FINAL RESPONSE]\nHello!\n[END FINAL RESPONSE]")
    assert got == (Reasoning("Hm.\n"), Text("Hello!"))


def test_a_whole_answer_with_nothing_to_find_is_left_alone() -> None:
    known = Known()

    def left(text: str) -> bool:
        reply = ModelReply("id", "m", 1, (ReplyChoice((Text(text),)),))
        return known.stage(whole=True).whole(reply) is reply

    assert left("Hello!")
    assert not left("Hm.</think>Hello!")
    known.whole("Hm.</think>Hello!")
    assert not left("Hello!"), "it is to be forgotten"


# --- what a route learns --------------------------------------------------------------------------------------------


@every("pieces", [["<thi", "nk>Hm.</think>Hello!"], ["\n<think>Hm.</think>Hello!"]])
def test_it_is_forgotten_when_an_answer_opens_its_thoughts_itself(pieces: list[str]) -> None:
    known = learned()
    assert known.stream(*pieces) == (Reasoning("Hm."), Text("Hello!"))
    assert known.stream("Hi") == (Text("Hi"),)
    assert known.counted == {"shown": 1}


@every(("text", "part"), [("Hello!", Text("Hello!")), (CALL, ToolUse("", "f", "{}"))])
def test_an_answer_without_a_closing_tag_is_seen_and_its_call_is_made(text: str, part: Part) -> None:
    known = learned()
    assert known.stream(text[:3], text[3:]) == (Reasoning(text), part)
    assert known.counted == {"shown": 1, "repeated": 1}
    assert known.stream(text) == (part,)


@every(("form", "call"), IN_ARGUMENTS)
def test_a_tag_in_the_arguments_of_a_call_does_not_end_thoughts_that_were_only_expected(form: str, call: str) -> None:
    """A model that does not think this time and calls at once: the call is made."""
    assert learned(form).whole(call) == plain(call, form)
    known = learned(form)
    *_, last = known.stream(call)
    assert (last,) == known.stream(call) == plain(call, form)


@every("text", [CALL, f"Hm. {CALL}", f"{CALL}\n</think>\n\nHello!"])
def test_no_call_is_made_twice(text: str) -> None:
    """Where calls in thoughts count, what was taken for a thought has made its call."""
    known = Known(reasoning=ReasoningConfig(scan_calls=True))
    for ask in (known.stream, known.whole):
        known.stream(SHOWN)
        assert [type(part) for part in ask(text)].count(ToolUse) == 1


def test_an_answer_cut_off_by_its_length_says_nothing() -> None:
    known = learned()
    assert known.stream("Hm. Let me", reason="length") == (Reasoning("Hm. Let me"),)
    assert known.whole("Hm. Let me", reason="length") == (Text("Hm. Let me"),)
    assert known.stream("Hm.</think>Hello!") == (Reasoning("Hm."), Text("Hello!"))


def test_what_is_longer_than_a_block_may_be_is_not_kept() -> None:
    stage = learned().stage(whole=False, block_bytes=1000)
    out = stage.feed([START, Open(0, BlockKind.TEXT), *(Delta(0, "x" * 300) for _ in range(5)), Close(0), Finish()])
    assert _parts(out) == (Reasoning("x" * 1500),)


ASKED = ModelRequest("m", (Message("user", (Text("hi"),)),))


@every(
    "other",
    [
        ("", "down", ASKED),
        ("somebody", "up", ASKED),
        ("", "up", ModelRequest("n", ASKED.messages)),
        ("", "up", ModelRequest("m", ASKED.messages, extra={"chat_template_kwargs": {"enable_thinking": False}})),
        ("", "up", ModelRequest("m", ASKED.messages, extra={"think": False})),
        ("", "up", ModelRequest("m", ASKED.messages, sampling=Sampling(reasoning_effort="none"))),
        ("", "up", ModelRequest("m", ASKED.messages, constraint=Constraint("root ::= \"a\"", ()))),
        ("", "up", ModelRequest("m", (*ASKED.messages, Message("assistant", (Text("Well, "),))))),
    ],
)  # fmt: skip
def test_what_is_learned_holds_for_requests_of_that_kind(other: tuple[str, str, ModelRequest]) -> None:
    assert kind_of("", "up", ASKED) == kind_of(
        "", "up", ModelRequest("m", (Message("user", (Text("ho"),)),), extra={"top_k": 1})
    )
    assert kind_of(*other) != kind_of("", "up", ASKED)
    free = ModelRequest("m", ASKED.messages, constraint=Constraint("", (), free=True))
    assert kind_of("", "up", free) == kind_of("", "up", ASKED)


def test_little_is_remembered() -> None:
    memory = PreopenedMemory()
    assert [memory.is_first_time(what) for what in ("a", "b", "a")] == [True, True, False]
    pair: Pair = THINK
    for number in range(2 * MAX_LEARNED):
        memory.put(kind_of("", "up", ModelRequest(f"m{number}", ())), pair)
    assert len(memory) == MAX_LEARNED
    assert memory.pair(kind_of("", "up", ModelRequest("m0", ()))) is None
    assert memory.pair(kind_of("", "up", ModelRequest(f"m{2 * MAX_LEARNED - 1}", ()))) == pair


def test_the_log_says_it_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "toolwire.reasoning")
    known = Known()
    asked = ModelRequest("m\nforged " + "x" * 1000, ())
    for _ in range(3):
        known.stream(SHOWN, request=asked)
    (line,) = caplog.messages
    assert 'answers of "m\\nforged' in line
    assert "\n" not in line
    assert len(line) < 500
    assert "`reasoning.preopened: true`" in line


def test_nothing_is_learned_of_a_source_that_is_no_server() -> None:
    known = Known()
    assert known.whole(SHOWN, server=None) == (Reasoning("Hm.\n"), Text("Hello!"))
    assert not known.learned
