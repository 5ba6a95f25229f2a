"""Formats in which a call is an element with a `name`, and so is each argument: MiniMax M2, dots, Step 3, MiniCPM5,
Muse.

MiniMax M3, whose argument elements are named after the arguments, is in `minimax.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import VERBATIM, Models, make_format
from ..engine.layout import Layout, Tagged
from ..engine.listing import tagged_functions
from ..engine.results import ResultForm
from ..engine.syntaxes import ELEMENTS, elements, framing, opened_by, section
from ..engine.templates import CHATML, MINIMAX, SENTENCEPIECE, bars, wide_bars
from ..engine.words import Words, around

_DOTS_TOKENS: Final = bars(
    "system endofsystem userprompt endofuserprompt response endofresponse observation endofobservation endoftext"
)

_MUSE_TOKENS: Final = bars("begin_of_text end_of_text start message eom eot finetune_right_pad")

_STEP3_TOKENS: Final = (
    *wide_bars(
        "begin▁of▁sentence end▁of▁sentence tool_outputs_begin tool_outputs_end tool_output_begin tool_output_end"
    ),
    *bars("BOT EOT im_start im_end"),
)

_MINIMAX_WORDS: Final = Words(
    template=around("Here are the tools available in JSONSchema format:\n\n<tools>\n", "\n</tools>"),
    tools=tagged_functions,
    results=ResultForm("<response>", "</response>"),
)


def _invoke(prefix: str = "") -> Layout:
    """Returns the layout of a call, with `prefix` before the words of its tags."""
    end = f"</{prefix}parameter>"
    return Layout(
        opener=f'<{prefix}invoke name="',
        name="plain",
        middle='">\n',
        arguments=Tagged(opener=f'<{prefix}parameter name="', strings='">', closer=f"{end}\n", stops=(end,)),
        closer=f"</{prefix}invoke>",
        separator="\n",
    )


def _in_section(tag: str, prefix: str = "") -> Layout:
    return replace(_invoke(prefix), first=f"<{tag}>\n", last=f"\n</{tag}>")


def _plain(base: int) -> tuple[Node, ...]:
    return elements(base, "parameter", "</invoke>")


def _tagged(tag: str) -> list[BlockSyntax]:
    """Returns the syntaxes of a section `<tag>` that contains `<invoke name=...>`."""
    return section(f"<{tag}>", "<invoke name=", _plain, f"</{tag}>", after="after", closer="</invoke>")


MINIMAX_M2: Final = make_format(
    "minimax_m2",
    Grammar(syntaxes=tuple(_tagged("minimax:tool_call"))),
    _in_section("minimax:tool_call"),
    notes=VERBATIM,
    models=Models(
        call='`<minimax:tool_call>` with `<invoke name="NAME">`',
        text="MiniMax M2",
        names=(r"minimax[-_]?m2",),
        templates=(("<minimax:tool_call>",),),
    ),
    template_tokens=MINIMAX,
    words=_MINIMAX_WORDS,
)

_DOTS: Final = Grammar(
    syntaxes=(
        *_tagged("dots_function_call"),
        BlockSyntax(opener="<dots_function_call>", closer="</dots_function_call>"),
    )
)

# dots.llm also writes one JSON object. (`examples/dots-format` is the same as a package, hence the other name.)
DOTS: Final = make_format(
    "dots_llm",
    _DOTS,
    _in_section("dots_function_call"),
    notes=VERBATIM,
    models=Models(
        call='`<dots_function_call>` with `<invoke name="NAME">`',
        text="dots",
        names=(r"dots[._-]?(llm|vlm|[1-9])",),
        templates=(("<dots_function_call>",),),
    ),
    template_tokens=_DOTS_TOKENS,
    elsewhere=opened_by(_DOTS, "<dots_function_call>"),
)

# --- Step 3 ---------------------------------------------------------------------------------------------------------

_STEP: Final = "<｜tool_call_begin｜>"  # the bar is U+FF5C, the underscores are ASCII
_STEP_END: Final = "<｜tool_call_end｜>"


def _step3(base: int) -> tuple[Node, ...]:
    end = base + 3 + ELEMENTS
    invoke = Branch(literal="<steptml:invoke name=", then=base + 3)
    return (
        (Branch(literal="function", then=base + 1), invoke),
        (Branch(literal="<｜tool_sep｜>", then=base + 2),),
        (invoke,),
        *elements(base + 3, "steptml:parameter", "</steptml:invoke>", then=end),
        (Branch(literal=_STEP_END),),
    )


STEP3: Final = make_format(
    "step3",
    Grammar(
        syntaxes=tuple(
            section("<｜tool_calls_begin｜>", _STEP, _step3, "<｜tool_calls_end｜>", tokens=True, closer=_STEP_END)
        )
    ),
    Layout(
        first="<｜tool_calls_begin｜>",
        opener=f'{_STEP}function<｜tool_sep｜><steptml:invoke name="',
        name="plain",
        middle='">',
        arguments=Tagged(
            opener='<steptml:parameter name="',
            strings='">',
            closer="</steptml:parameter>",
            stops=("</steptml:parameter>",),
        ),
        closer=f"</steptml:invoke>{_STEP_END}",
        last="<｜tool_calls_end｜>",
    ),
    notes=VERBATIM,
    models=Models(
        call='`<｜tool_calls_begin｜>` with `<steptml:invoke name="NAME">`',
        text="Step 3",
        names=(r"step[-_]?3",),
        templates=(("<steptml:",),),
    ),
    template_tokens=_STEP3_TOKENS,
    words=Words(
        results=ResultForm(
            "<｜tool_output_begin｜>",
            "<｜tool_output_end｜>",
            first="<｜tool_outputs_begin｜>",
            separator="",
            last="<｜tool_outputs_end｜>",
        )
    ),
)

# --- MiniCPM5 -------------------------------------------------------------------------------------------------------


def _minicpm5() -> tuple[Node, ...]:
    """Returns `elements`, except that a value may stand in `<![CDATA[` and `]]>`, where its own closer is data, and the
    space in a tag may be missing."""
    name, tag, first, (text, *attributes), value, body, more, *ends = elements(0, "param", "</function>")
    named = replace(more[0], literal="<paramname=")
    cdata = ELEMENTS
    return (
        name,
        tag,
        (*first, named),
        (replace(text, read="nothing", field="", then=cdata), *attributes),
        value,
        body,
        (*more, named),
        *ends,
        (
            Branch(literal="<![CDATA[", read="text", field="value", then=cdata + 1),
            Branch(read="text", field="value", then=4),
        ),
        (Branch(literal="]]>", then=4),),
    )


MINICPM5: Final = make_format(
    "minicpm5",
    Grammar(
        syntaxes=tuple(
            BlockSyntax(opener=opener, closer="</function>", body=_minicpm5())
            for opener in ('<function name="', "<function name='", '<functionname="')
        )
    ),
    Layout(
        opener='<function name="',
        name="plain",
        middle='">',
        arguments=Tagged(opener='<param name="', strings='">', closer="</param>", stops=("</param>", "<![CDATA[")),
        closer="</function>",
        separator="\n",
    ),
    notes=VERBATIM,
    models=Models(call='`<function name="NAME"><param name="KEY">`', text="MiniCPM5", names=(r"minicpm[-_]?[5-9]",)),
    template_tokens=(*CHATML, *SENTENCEPIECE),
)

# --- Muse -----------------------------------------------------------------------------------------------------------

# Everything is a message, as in harmony: ` to=RECIPIENT<|message|>`. A message to `self` is reasoning. Other recipients
# are ignored, because the call in the message has the tool's name.
_RECIPIENT: Final[tuple[Node, ...]] = (
    (Branch(literal="self<|message|>", ahead=True), Branch(read="word", then=2)),
    (Branch(literal="<|message|>"),),
)
_HEADER: Final[Node] = (Branch(literal="to=", then=1), Branch(literal="<|message|>"))


def _muse_call(base: int) -> tuple[Node, ...]:
    """Returns `elements`, where a name may be followed by the end of the header it was copied from."""
    name, tag, *others = elements(base, "atem:parameter", "</atem:invoke>")
    more = base + ELEMENTS
    return (
        name,
        (*tag, Branch(literal="<|message|>", then=more)),
        *others,
        tuple(Branch(literal=literal, then=base + 2) for literal in ('">', ">")),
    )


_MUSE_FRAMING: Final = (
    BlockSyntax(opener="<|start|>assistant", body=(_HEADER, *_RECIPIENT), framing="head"),
    BlockSyntax(opener="", anchor="answer", body=(_HEADER, *_RECIPIENT)),
    framing("<|eom|>"),
    framing("<|eot|>"),
)

_MUSE_SECTION: Final = section(
    "<atem:function_calls>",
    "<atem:invoke name=",
    _muse_call,
    "</atem:function_calls>",
    closer="</atem:invoke>",
)

MUSE: Final = make_format(
    "muse",
    Grammar(
        syntaxes=(*_MUSE_SECTION, *_MUSE_FRAMING),
        reasoning=(("self<|message|>", "<|eom|>"),),
    ),
    _in_section("atem:function_calls", "atem:"),
    notes=VERBATIM,
    framing=_MUSE_FRAMING,
    models=Models(
        call='`<atem:function_calls>` with `<atem:invoke name="NAME">`, in messages with headers; messages to itself are reasoning',
        text="Muse",
        names=(r"muse[-_]?(spark|glimmer)",),
        templates=(("<atem:invoke",),),
    ),
    template_tokens=_MUSE_TOKENS,
    elsewhere=_MUSE_SECTION,
)
