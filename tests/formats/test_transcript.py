"""Conversations with tools as text for a backend that knows none (R5)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import every
from tests.formats.cases import FORMATS, SEARCH, WEATHER, every_format, scan
from toolwire import open_scanner
from toolwire.config import PromptConfig
from toolwire.events import BlockKind, Delta, Open
from toolwire.fastparse import CallScanner
from toolwire.formats.base import ToolFormat
from toolwire.formats.families import bare_json, fenced_json, hermes, sentinel
from toolwire.formats.recognised.brackets import reading_brackets
from toolwire.model import (
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolChoice,
    ToolResult,
    ToolSpec,
    ToolUse,
)
from toolwire.prompting import transcript
from toolwire.prompting.placing import GO_ON
from toolwire.prompting.prompt import (
    MAY,
    NEVER,
    PLACEHOLDERS,
    check_template,
    content_key,
    policy,
    segment,
)
from toolwire.prompting.transcript import inject, split_at
from toolwire.scan._pyparse import CallScanner as PythonScanner

SENTINEL = sentinel.FORMAT
STRICT = ToolSpec("exact", None, {"type": "object", "properties": {}}, strict=True)


def says(role: Role, text: str) -> Message:
    return Message(role, (Text(text),))


def calls(*ids: str, text: str = "") -> Message:
    uses: tuple[Part, ...] = tuple(ToolUse(call, f"tool_{call}", f'{{"n":"{call}"}}') for call in ids)
    return Message("assistant", ((Text(text),) if text else ()) + uses)


def result(call: str, text: str = "ok", name: str | None = None) -> Message:
    return Message("tool", (ToolResult(call, (Text(text),), name=name),))


def request(*messages: Message, tools: Sequence[ToolSpec] = (), **more: Any) -> ModelRequest:
    return ModelRequest("m", messages, tuple(tools), **more)


def taught(
    asked: ModelRequest, tool_format: ToolFormat = SENTINEL, prompt: PromptConfig | None = None, **more: Any
) -> ModelRequest:
    prompt = prompt or PromptConfig()
    return inject(asked, segment(asked, tool_format, prompt), tool_format, placement=prompt.placement, **more)


def plain(asked: ModelRequest) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in asked.messages]


def block(call: str) -> str:
    return SENTINEL.render_call(ToolUse(call, f"tool_{call}", f'{{"n":"{call}"}}'))


def answer(call: str, text: str = "ok", name: str | None = "") -> str:
    return SENTINEL.render_result(ToolResult(call, (Text(text),), name=f"tool_{call}" if name == "" else name))


# --- the segment (R5.1 to R5.5) -------------------------------------------------------------------------------------


def test_the_segment_teaches_form_tools_and_policy() -> None:
    text = segment(
        request(says("user", "hi"), tools=(WEATHER, SEARCH)), SENTINEL, PromptConfig(examples="Example {tools}")
    )
    assert '<tool_call>{"name": <function-name>, "arguments":' in text
    assert "no Markdown fence" in text
    assert text.index('"function":{"name":"get_weather","description":"Get the weather."') < text.index(
        '{"name":"search"'
    )
    assert "Several calls may follow" in text
    assert text.endswith("Example {tools}")  # what is put in is not searched for placeholders


@pytest.mark.parametrize(
    ("tools", "choice", "parallel", "said", "unsaid"),
    [
        ((WEATHER,), ToolChoice(), True, [MAY, "Several calls"], ["must", "Only these"]),
        ((WEATHER,), ToolChoice(), False, ["Make only one call"], ["Several calls"]),
        ((WEATHER,), ToolChoice("required"), True, ["must call at least one tool"], [MAY]),
        ((WEATHER,), ToolChoice("named", "get_weather"), True, ["must call the tool `get_weather`", "no other"], []),
        ((WEATHER,), ToolChoice(allowed=("get_weather",)), True, ["Only these tools may be called: `get_weather`."], []),
        ((STRICT,), ToolChoice(), True, ["The arguments must conform exactly"], []),
        ((STRICT, WEATHER), ToolChoice(), True, ["The arguments for `exact` must conform exactly"], []),
        ((), ToolChoice("none"), True, [NEVER], ["Several"]),
    ],
)  # fmt: skip
def test_policy_sentences(
    tools: tuple[ToolSpec, ...], choice: ToolChoice, parallel: bool, said: list[str], unsaid: list[str]
) -> None:
    text = policy(tools, choice, parallel)
    assert all(sentence in text for sentence in said)
    assert not any(sentence in text for sentence in unsaid)


def test_only_tools_that_may_be_called_are_listed() -> None:
    hosted = ToolSpec("web_search", kind="hosted")
    asked = request(says("user", "hi"), tools=(WEATHER, SEARCH, hosted), tool_choice=ToolChoice("named", "search"))
    text = segment(asked, SENTINEL, PromptConfig())
    assert "get_weather" not in text
    assert "web_search" not in text
    assert segment(request(tools=(hosted,)), SENTINEL, PromptConfig()) == ""


def test_none_forbids_and_lists_only_on_demand() -> None:
    asked = request(says("user", "hi"), tools=(WEATHER,), tool_choice=ToolChoice("none"))
    assert segment(asked, SENTINEL, PromptConfig()) == NEVER
    text = segment(asked, SENTINEL, PromptConfig(inject_when_none=True))
    assert NEVER in text
    assert "get_weather" in text


def test_templates_are_not_confused_by_braces() -> None:
    tool = ToolSpec("t", "{policy} {0} {{x}}", {"type": "object", "properties": {"{tools}": {"type": "null"}}})
    prompt = PromptConfig(template="{x} {tools} | {policy} | {format} | {examples} {", examples="{format}")
    text = segment(request(tools=(tool,)), SENTINEL, prompt)
    assert text.startswith(
        '{x} {"type":"function","function":{"name":"t","description":"{policy} {0} {{x}}","parameters":'
    )
    assert text.endswith("| {format} {")


def test_a_template_must_hold_every_placeholder() -> None:
    assert all(check_template(tool_format.template) == [] for tool_format in FORMATS)
    assert check_template("{tools}{ policy }{format}") == ["{policy}", "{examples}"]
    assert check_template("") == [f"{{{name}}}" for name in PLACEHOLDERS]


def test_equal_tools_give_equal_bytes_and_one_key() -> None:
    def asked() -> ModelRequest:
        return request(
            says("user", "hi"), tools=(ToolSpec("t", "d", {"type": "object", "properties": {"b": {}, "a": {}}}),)
        )

    assert taught(asked()) == taught(asked())
    assert content_key(asked(), "x") == content_key(asked(), "x")


@pytest.mark.parametrize(
    "other",
    [
        request(tools=(SEARCH, WEATHER)),
        request(tools=(WEATHER,)),
        request(tools=(WEATHER, ToolSpec("search", ""))),
        request(tools=(WEATHER, ToolSpec("search", strict=True))),
        request(tools=(WEATHER, SEARCH), tool_choice=ToolChoice("required")),
        request(tools=(WEATHER, SEARCH), parallel_tool_calls=False),
    ],
)
def test_whatever_changes_the_segment_changes_the_key(other: ModelRequest) -> None:
    assert content_key(other) != content_key(request(tools=(WEATHER, SEARCH)))


S = "SEGMENT"


@every(
    ("placement", "given", "expected"),
    [
        ("append", ["system:A", "user:u"], ["system:A\n\nSEGMENT", "user:u"]),
        ("append", ["user:u", "developer:A", "user:v"], ["system:SEGMENT", "user:u", "developer:A", "user:v"]),
        ("append", ["system:A", "user:u", "system:B"], ["system:A\n\nSEGMENT", "user:u", "system:B"]),
        ("append", ["assistant:a", "system:A", "user:u"], ["assistant:a", "system:A\n\nSEGMENT", "user:u"]),
        ("prepend", ["user:u", "system:A", "user:v"], ["system:SEGMENT", "user:u", "system:A", "user:v"]),
        ("separate", ["user:u", "system:A", "user:v"], ["system:SEGMENT", "user:u", "system:A", "user:v"]),
        ("append", ["user:u"], ["system:SEGMENT", "user:u"]),
        ("append", ["system:", "user:u"], ["system:SEGMENT", "user:u"]),
        ("append", [], ["system:SEGMENT", f"user:{GO_ON}"]),
        ("append", ["user:u", "assistant:a"], ["system:SEGMENT", "user:u", "assistant:a", f"user:{GO_ON}"]),
        ("prepend", ["system:A", "system:B", "user:u"], ["system:SEGMENT\n\nA", "system:B", "user:u"]),
        ("separate", ["system:A", "developer:B", "user:u"], ["system:A", "developer:B", "system:SEGMENT", "user:u"]),
        ("separate", ["user:u"], ["system:SEGMENT", "user:u"]),
        ("user", ["system:A", "user:u", "user:v"], ["system:A", "user:SEGMENT\n\nu", "user:v"]),
        ("user", ["system:A", "assistant:a"], ["system:A", "user:SEGMENT", "assistant:a", f"user:{GO_ON}"]),
    ],
)  # fmt: skip
def test_placement(placement: Any, given: list[str], expected: list[str]) -> None:
    messages = [says(role, text) for role, _, text in (entry.partition(":") for entry in given)]  # type: ignore[arg-type]
    asked = request(*messages, tools=(WEATHER,))
    assert [f"{role}:{text}" for role, text in plain(inject(asked, S, SENTINEL, placement=placement))] == expected


def test_the_segment_joins_a_neighbouring_text_and_leaves_images() -> None:
    image = Image("data:image/png;base64,xx")
    asked = request(Message("user", (image, Text("what is this?"))), tools=(WEATHER,))
    (message,) = inject(asked, S, SENTINEL, placement="user").messages
    assert message.parts == (Text(S), image, Text("what is this?"))


def test_tools_are_dropped_and_the_rest_is_kept() -> None:
    asked = request(
        says("user", "hi"), tools=(WEATHER,), tool_choice=ToolChoice("required"), parallel_tool_calls=False,
        stream=True, extra={"top_k": 3},
    )  # fmt: skip
    changed = taught(asked)
    assert (changed.tools, changed.tool_choice.mode, changed.parallel_tool_calls) == ((), "none", True)
    assert (changed.model, changed.stream, changed.extra) == ("m", True, {"top_k": 3})


# --- the history (R5.6 to R5.8a) ------------------------------------------------------------------------------------


@pytest.mark.parametrize("flatten", ["sentinel", "bracket", "native"])
def test_a_request_without_tools_and_history_is_the_same_object(flatten: Any) -> None:
    asked = request(says("system", "s"), says("assistant", "<tool_call>x"))
    assert inject(asked, "", SENTINEL, flatten=flatten) is asked


HISTORY: dict[str, tuple[list[Message], list[tuple[str, str]]]] = {
    "calls and results become text": (
        [says("user", "go"), calls("a", "b", text="Looking."), result("a", "A"), result("b", "B"), says("user", "so")],
        [
            ("user", "go"),
            ("assistant", f"Looking.\n{block('a')}\n{block('b')}"),
            ("user", f"{answer('a', 'A')}\n{answer('b', 'B')}"),
            ("user", "so"),
        ],
    ),
    "results follow the order of the calls and move to them": (
        [calls("a", "b"), result("b"), says("user", "wait"), calls("c"), result("c"), result("a")],
        [
            ("assistant", f"{block('a')}\n{block('b')}"),
            ("user", f"{answer('a')}\n{answer('b')}"),
            ("user", "wait"),
            ("assistant", block("c")),
            ("user", answer("c")),
        ],
    ),
    "orphans stay where they are": (
        [result("x", "1", name="known"), says("user", "mid"), result("y", "2"), calls("y")],
        [
            ("user", answer("x", "1", "known")),
            ("user", "mid"),
            ("user", answer("y", "2", None)),
            ("assistant", block("y")),
            ("user", GO_ON),
        ],
    ),
    "ids that begin anew in every turn belong to the latest call": (
        [calls("0"), result("0", "first"), calls("0", "0"), result("0", "second"), result("0", "third")],
        [
            ("assistant", block("0")),
            ("user", answer("0", "first")),
            ("assistant", f"{block('0')}\n{block('0')}"),
            ("user", f"{answer('0', 'second')}\n{answer('0', 'third')}"),
        ],
    ),
    "results inside a user message leave its text": (
        [calls("a"), Message("user", (ToolResult("a", (Text("A"),)), Text("and now?")))],
        [("assistant", block("a")), ("user", answer("a", "A")), ("user", "and now?")],
    ),
}


@every("case", HISTORY)
def test_the_history(case: str) -> None:
    messages, wanted = HISTORY[case]
    assert plain(taught(request(*messages))) == wanted


def test_a_second_result_for_a_call_is_kept() -> None:
    """All calls of the turn are named: the order does not tell them."""
    results = [result("a", "1"), result("a", "2"), result("b", "3")]
    texts = plain(taught(request(calls("a", "b"), *results)))
    told = [f"<tool_response call_id={a} name=tool_{a}>\n{b}\n</tool_response>" for a, b in ("a1", "a2", "b3")]
    assert texts[-1] == ("user", "\n".join(told))


def test_images_of_results_follow_their_text() -> None:
    image = Image("data:image/png;base64,xx")
    asked = request(calls("a", "b"), Message("tool", (ToolResult("a", (Text("A"), image)),)), result("b"))
    parts = taught(asked).messages[-1].parts
    assert parts == (Text(answer("a", "A\n\n[image]")), image, Text(answer("b")))
    alone = request(calls("a"), Message("tool", (ToolResult("a", (image, Text(""))),)))
    assert taught(alone).messages[-1].parts == (Text(answer("a", "[image]")), image), "no empty text: servers refuse it"


@given(
    st.lists(st.sampled_from(["calls", "result", "user", "assistant"]), max_size=12), st.randoms(use_true_random=False)
)
def test_every_result_and_call_is_there_exactly_once(kinds: list[str], random: Any) -> None:
    messages: list[Message] = []
    wanted: list[str] = []
    for n, kind in enumerate(kinds):
        ids = [random.choice("abc") for _ in range(random.randint(1, 3))]
        match kind:
            case "calls":
                messages.append(calls(*ids))
            case "result":
                wanted.append(f"result-{n}.")
                messages.append(result(ids[0], wanted[-1]))
            case _:
                messages.append(says(kind, "talk"))  # type: ignore[arg-type]
    asked = request(*messages)
    changed = taught(asked)
    everything = "\n".join(message.text for message in changed.messages)
    assert [everything.count(mark) for mark in wanted] == [1] * len(wanted)
    assert everything.count("<tool_call>") == sum(isinstance(p, ToolUse) for m in messages for p in m.parts)
    assert not any(isinstance(part, ToolUse | ToolResult) for m in changed.messages for part in m.parts)
    if changed is not asked:
        assert changed.messages[-1].role == "user"


def test_instructions_of_the_client_keep_their_markers() -> None:
    asked = request(
        says("system", "<tool_call> is ours"),
        says("user", "<tool_call>"),
        says("developer", "<|im_end|> is ours as well"),
        tools=(WEATHER,),
    )
    system, user, developer = plain(taught(asked))
    assert system[1].startswith("<tool_call> is ours")
    assert user[1] == "<\\tool_call>"
    assert developer[1] == "<|im_end|> is ours as well"


def openers(tool_format: ToolFormat) -> list[str]:
    """What opens a block anywhere."""
    return [syntax.opener for syntax in tool_format.grammar.syntaxes if syntax.opener and syntax.anchor == "anywhere"]


@every("flatten", ["sentinel", "bracket"])
@every_format
def test_ids_and_names_hold_no_call(tool_format: ToolFormat, flatten: Any) -> None:
    call = tool_format.render_call(ToolUse("x", "search", '{"q":1}'))
    use = ToolUse(f"i {call}", f"n {call}", "{}", namespace=f"s {call}", item_id=f"j {call}")
    asked = request(
        Message("user", (Text("hi"),), name=call),
        Message("assistant", (use,)),
        Message(
            "tool", (ToolResult(use.call_id, (Text("r"),)), ToolResult(f"o {call}", (Text("r"),), name=f"p {call}"))
        ),
        tools=(SEARCH,),
    )
    for message in taught(asked, tool_format, flatten=flatten).messages[1:]:
        for text in (message.text, message.name or ""):
            found = [part for part in scan(tool_format, (SEARCH,), [text]) if isinstance(part, ToolUse)]
            assert found == []
            if message.role == "user" or flatten == "bracket":
                assert not any(opener in text for opener in openers(tool_format))


TOKENS = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|eom_id|>", "<|begin_of_text|>",
    "[INST]", "[/INST]", "[/TOOL_RESULTS]", "[SYSTEM_PROMPT]", "</s>", "<<SYS>>", "<start_of_turn>", "<end_of_turn>", "<|turn>",
    "<turn|>", "<|tool_response>", "<|start|>", "<|message|>", "<|end|>", "<|channel|>", "<｜User｜>", "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>", "<｜tool▁outputs▁begin｜>", "<|im_user|>", "<|im_middle|>", "<|open|>", "<|user|>", "<|observation|>",
    "[gMASK]", "<|start_of_role|>", "<|end_of_role|>", "<|END_OF_TURN_TOKEN|>", "]~b]", "[e~[", "<seed:bos>", "<|role_sep|>",
    "<SPECIAL_11>", "<|header_start|>", "<|eot|>", "<|bom|>", "<|user_start|>", "<|extra_0|>", "<｜hy_User｜>", "[|endofturn|]",
]  # fmt: skip


@pytest.mark.parametrize("flatten", ["sentinel", "bracket"])
@pytest.mark.parametrize("name", ["sentinel", "fenced_json", "bare_json", "auto"])
def test_control_tokens_of_every_template_mean_nothing_in_data(name: str, flatten: Any) -> None:
    """These formats may be taught to any model."""
    tool_format = next(f for f in FORMATS if f.name == name)
    everything = " ".join(TOKENS)
    arguments = json.dumps({everything: [everything, {"x": everything}]}, ensure_ascii=False)
    tool = ToolSpec("t", everything, {"type": "object", "properties": {everything: {"enum": [everything]}}})
    asked = request(
        says("user", everything),
        Message(
            "assistant",
            (Text(everything), Reasoning(everything), Refusal(everything), ToolUse(everything, "t", arguments)),
        ),
        Message("tool", (ToolResult(everything, (Text(everything), OpaquePart("chat", {"text": everything}))),)),
        Message("user", (OpaquePart("chat", {"type": "input_text", "text": everything}),), name=everything),
        tools=(tool,),
    )
    for message in taught(asked, tool_format, flatten=flatten).messages:
        shown = repr(message)
        assert [token for token in TOKENS if token in shown] == []


@every(
    ("name", "own", "foreign"),
    [
        ("hermes", "<|im_end|>", "<end_of_turn>"),
        ("qwen3_coder", "<|im_start|>", "[/INST]"),
        ("llama3_json", "<|eot_id|>", "<|im_end|>"),
        ("mistral", "[/TOOL_RESULTS]", "<|eot_id|>"),
        ("gemma4", "<|tool_response>", "<｜User｜>"),
        ("functiongemma", "<start_of_turn>", "<|user|>"),
        ("deepseek_v31", "<｜User｜>", "<|start|>"),
        ("harmony", "<|start|>", "<|im_end|>"),
        ("kimi_k2", "<|im_middle|>", "<start_of_turn>"),
        ("glm47", "<|observation|>", "</s>"),
        ("granite", "<|end_of_role|>", "<|eot_id|>"),
        ("cohere", "<|END_OF_TURN_TOKEN|>", "<|im_end|>"),
        ("minimax_m2", "[e~[", "[INST]"),
    ],
)
def test_control_tokens_of_the_formats_own_models_and_no_others(name: str, own: str, foreign: str) -> None:
    tool_format = next(f for f in FORMATS if f.name == name)
    for message in (says("user", f"a {own} b {foreign} c"), result("x", f"a {own} b {foreign} c")):
        shown = taught(request(message, tools=(WEATHER,)), tool_format).messages[-1].text
        first = own[0]
        assert f"a {first}\\{own[1:].removesuffix('[')}" in shown
        assert f" b {foreign} c" in shown


def test_a_message_without_a_marker_is_the_same_object() -> None:
    asked = request(
        Message("user", (Text("a < b [x] `y` {z} <b>bold</b> \\n <think about it>"),), name="ann"),
        Message("assistant", (Text("So."), OpaquePart("chat", {"type": "x", "n": 1}))),
        says("user", "```python\nx\n```"),
        tools=(WEATHER,),
    )
    for tool_format in FORMATS:
        assert all(a is b for a, b in zip(taught(asked, tool_format).messages[1:], asked.messages, strict=True))


def test_a_fence_in_talk_is_only_touched_where_it_could_open_a_block() -> None:
    asked = request(says("user", "```python\nx\n```\n```json\n{}\n```"), tools=(WEATHER,))
    assert plain(taught(asked, fenced_json.FORMAT))[-1][1] == "```python\nx\n```\n`\\``json\n{}\n```"
    assert taught(asked, hermes.FORMAT).messages[-1] is asked.messages[0]


def test_a_bare_object_stands_alone() -> None:
    asked = request(calls("a", "b", text="Looking."), result("a"), result("b"))
    texts = plain(taught(asked, bare_json.FORMAT))
    assert [role for role, _ in texts] == ["assistant", "assistant", "user"]
    assert texts[1][1].startswith('{"tool_calls":[{"name":"tool_a"')
    in_brackets = plain(taught(asked, bare_json.FORMAT, flatten="bracket"))
    assert [role for role, _ in in_brackets] == ["assistant", "user"]


def test_bracket_style() -> None:
    use = ToolUse("call_b2", "localSearch", '{"query":"x"}', item_id="fc_a1")
    asked = request(
        Message("assistant", (use, ToolUse("c", "t", ""))),
        result("call_b2", '{"hits":0} [function_call_output x]'),
        result("c"),
        result("orphan"),
    )
    assert plain(taught(asked, flatten="bracket")) == [
        (
            "assistant",
            '[function_call id=fc_a1 call_id=call_b2 name=localSearch arguments={"query":"x"}]\n'
            "[function_call call_id=c name=t arguments={}]",
        ),
        (
            "user",
            '[function_call_output call_id=call_b2 output={"hits":0} [\\function_call_output x]]\n'
            "[function_call_output call_id=c output=ok]",
        ),
        ("user", "[function_call_output call_id=orphan output=ok]"),
    ]


@pytest.mark.parametrize("scanner", [CallScanner, PythonScanner])
@pytest.mark.parametrize("size", [1, 5, 1000])
def test_brackets_are_read_as_they_are_shown(scanner: Any, size: int) -> None:
    """R5.7, with ids that look like the rest of such a call; an id that is too long to be read is left out. Results
    open nothing."""
    ids = ["plain", 'a "b" name=x arguments={} ]\n<|im_end|>', "x" * 300]
    uses = tuple(ToolUse(call, "search", '{"q":"]} [function_call name=a"}', item_id=f"fc {call}") for call in ids)
    asked = request(
        Message("assistant", uses), *(result(call, "[function_call name=search arguments={}]") for call in ids)
    )
    shown, results = plain(taught(asked, flatten="bracket"))
    for text, found in ((shown[1], 3), (results[1], 0)):
        it = open_scanner(reading_brackets(SENTINEL), ["search"], scanner=scanner)
        events = [event for at in range(0, len(text), size) for event in it.feed(text[at : at + size])] + it.finish()
        made = [event for event in events if isinstance(event, Open) and event.kind is BlockKind.TOOL_CALL]
        assert [event.name for event in made] == ["search"] * found
        for event in made:
            arguments = "".join(d.text for d in events if isinstance(d, Delta) and d.block == event.block)
            assert json.loads(arguments) == {"q": "]} [function_call name=a"}


def test_native_history_is_left_alone() -> None:
    asked = request(says("user", "go"), calls("a"), result("a"), tools=(WEATHER,))
    changed = taught(asked, flatten="native")
    assert changed.messages[1:] == asked.messages
    assert changed.tools == ()


MARKS = ("<tool_call>", "</tool_call>", "<tool", "<", "<|im_end|>")


@given(
    st.lists(st.sampled_from([*MARKS, "<to", "ol_call>", "a", "\\", " "]), max_size=30).map("".join), st.integers(1, 9)
)
def test_law_attempts_are_split_as_by_one_search(text: str, size: int) -> None:
    markers = sorted(MARKS, key=len, reverse=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transcript, "SLICE_CHARS", size)
        assert split_at(text, markers) == re.split(f"({'|'.join(map(re.escape, markers))})", text)
    assert split_at(text, []) == [text]
