"""Formats with a name, then a key and a value for each argument, all in tags.

GLM-4.5 and 4.6 have line ends between the tags, GLM-4.7 and 5 do not; TeleChat 4 has other words for key and value.
These share one opener, so each reads the calls of the others. IQuest Q1 and Coder V2, Hunyuan 3 and 4, K2 Horizon and
Solar Open 2 have tags of their own.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node, wrong_closers
from ..base import VERBATIM, Models, make_format
from ..engine.layout import Layout, Tagged
from ..engine.syntaxes import DONE, opened_by, pairs, section
from ..engine.templates import CHATML, HUNYUAN, bars, between

_GLM_TOKENS: Final = (
    *bars(
        "system user assistant observation endoftext begin_of_image end_of_image image begin_of_video end_of_video video "
        "begin_of_audio end_of_audio begin_of_transcription end_of_transcription code_prefix code_middle code_suffix"
    ),
    *between("[", "gMASK sMASK MASK", "]"),
    *between("<", "sop eop", ">"),
)

_K2_HORIZON_TOKENS: Final = between("<|ifm|", "begin_of_text end_of_text endoftext im_start im_end", "|>")

_SOLAR_TOKENS: Final = bars(
    "im:start im:content im:end tool:start tool:end think:start think:end tool_response:start tool_response:end"
)


def _syntax(tag: str, *prefixes: str) -> BlockSyntax:
    """Returns the syntax of a name and pairs, whose tags are `key` and `value` after one of the `prefixes`. GLM 5.3
    also writes all arguments as one JSON object, perhaps after a `>`, and a value's closer right after the name."""
    end = Branch(literal=f"</{tag}>")
    wrong = wrong_closers(end.literal)
    over, braces, row = 2, 3, 4
    firsts = [(row + 5 * number, f"{prefix}key", f"{prefix}value") for number, prefix in enumerate(prefixes)]
    nodes: list[Node] = [
        (Branch(read="name", field="name", then=1),),
        (
            *(Branch(literal=f"<{key}>", read="word", field="key", then=base) for base, key, _ in firsts),
            end,
            *(Branch(literal=f"</{value}>", then=over) for _, _, value in firsts),
            Branch(literal=">", then=braces),
            Branch(read="object", field="arguments", then=over),
        ),
        (end, *wrong, DONE),
        (Branch(read="object", field="arguments", then=over),),
    ]
    for base, key, value in firsts:
        nodes += [
            (Branch(literal=f"</{key}>", then=base + 1),),
            (Branch(literal=f"<{value}>", read="text", field="value", then=base + 2),),
            (
                Branch(literal=f"</{value}>", then=base + 4),
                *(Branch(literal=f"</{word}>", then=base + 4, slip=True) for word in (key, "parameter", "value")),
                *(Branch(literal=f"{line}</{tag}>", then=base + 3) for line in ("", "\n")),  # some leave out the last
            ),
            (),
            (Branch(literal=f"<{key}>", read="word", field="key", then=base), end, *wrong),
        ]
    return BlockSyntax(opener=f"<{tag}>", closer=f"</{tag}>", body=tuple(nodes))


def _grammar(tag: str, *prefixes: str) -> Grammar:
    """Returns the grammar of calls in this tag. It also reads JSON objects as in `hermes`, which would otherwise look
    like arguments without a name."""
    return Grammar(syntaxes=(_syntax(tag, *prefixes), BlockSyntax(opener=f"<{tag}>", closer=f"</{tag}>")))


def _layout(
    opener: str,
    closer: str,
    end: str,
    *,
    name_end: str = "",
    prefix: str = "arg_",
    first: str = "",
    last: str = "",
) -> Layout:
    """Returns the layout. `end` follows the name (after `name_end`) and every tag of an argument; `prefix` stands
    before the words `key` and `value` in these tags."""
    value_end = f"</{prefix}value>"
    return Layout(
        opener=opener,
        name="plain",
        middle=name_end + end,
        arguments=Tagged(
            opener=f"<{prefix}key>",
            strings=f"</{prefix}key>{end}<{prefix}value>",
            closer=value_end + end,
            stops=(value_end,),
        ),
        closer=closer,
        separator=end,
        first=first,
        last=last,
    )


GRAMMAR: Final = _grammar("tool_call", "arg_", "param_")
GLM45: Final = make_format(
    "glm45",
    GRAMMAR,
    _layout("<tool_call>", "</tool_call>", "\n"),
    notes=VERBATIM,
    models=Models(
        call="`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`, a tag a line",
        text="GLM-4.5, 4.6, Ling 2.6 and 3, Ring 2.6, Spark 2.5 and 3, HyperCLOVA X SEED, Laguna",
        names=(
            r"glm[-_]?4[._p-][56](?![0-9]*b)",
            r"(ling|ring)[-_]?([a-z0-9]+[-_])?v?(2[._p-][6-9]|[3-9])(?![0-9]*b|[0-9])",
            r"laguna|spark[-_]?(2[._p]5|3)(?![0-9])",
            r"hyperclovax[-_]seed[-_]think",
        ),
        templates=(("<tool_call>", "<arg_key>", "</arg_key>"),),
    ),
    template_tokens=_GLM_TOKENS,
    elsewhere=(),
)
GLM47: Final = make_format(
    "glm47",
    GRAMMAR,
    _layout("<tool_call>", "</tool_call>", ""),
    notes=VERBATIM,
    models=Models(
        call="as `glm45`, without line ends; each reads both",
        text="GLM-4.7, 5",
        names=(r"glm[-_]?(4[._p-]7|[5-9])(?![0-9]*b|[0-9])",),
    ),
    template_tokens=_GLM_TOKENS,
)

IQUEST: Final = make_format(
    "iquest",
    _grammar("iquest_tool_call", "arg_"),
    _layout("<iquest_tool_call>", "</iquest_tool_call>", ""),
    notes=VERBATIM,
    models=Models(
        call="as `glm47`, inside `<iquest_tool_call>`",
        text="IQuest-Coder Q1",
        names=(r"iquest[-_](.*[-_])?q1(?![0-9])",),
        templates=(("<iquest_tool_call>",),),
    ),
    template_tokens=CHATML,
)
IQUEST_CODER: Final = make_format(
    "iquest_coder",
    _grammar("iquestcoder_tool_call", "arg_"),
    _layout("<iquestcoder_tool_call>", "</iquestcoder_tool_call>", "\n"),
    notes=VERBATIM,
    models=Models(
        call="`glm45` inside `<iquestcoder_tool_call>`",
        text="IQuest-Coder V2",
        names=(r"iquest[-_]?coder[-_]?v[2-9]",),
        templates=(("<iquestcoder_tool_call>",),),
    ),
    template_tokens=CHATML,
)
TELECHAT4: Final = make_format(
    "telechat4",
    GRAMMAR,
    _layout("<tool_call>", "</tool_call>", "", prefix="param_"),
    notes=VERBATIM,
    models=Models(
        call="as `glm47`, with `<param_key>` and `<param_value>`; each of the three reads all",
        text="TeleChat 4, Xing 4",
        names=(r"tele[-_]?chat[-_]?[4-9]|xing[-_]?[4-9]",),
        templates=(("<param_key>", "<param_value>"),),
    ),
    elsewhere=(),
)

# --- Hunyuan 3 and 4 ------------------------------------------------------------------------------------------------


def _hunyuan_call(base: int) -> tuple[Node, ...]:
    """Returns the nodes after `<tool_call>`. Hunyuan 3 writes `<tool_sep>` after the name, Hunyuan 4 does not."""
    more = base + 2
    return (
        (Branch(read="word", field="name", then=base + 1),),
        (
            Branch(literal="<tool_sep>", then=more),
            Branch(literal="<arg_key>", read="word", field="key", then=more + 1),
            Branch(literal="</tool_call>"),
        ),
        (Branch(literal="<arg_key>", read="word", field="key", then=more + 1), Branch(literal="</tool_call>")),
        (Branch(literal="</arg_key>", then=more + 2),),
        (Branch(literal="<arg_value>", read="text", field="value", then=more + 3),),
        (Branch(literal="</arg_value>", then=more),),
    )


def _suffixed_call(base: int) -> tuple[Node, ...]:
    """Returns the same nodes with a suffix in every tag, `<tool_call:SUFFIX>`. The suffix depends on the checkpoint's
    tokenizer, so any suffix is read."""

    def tag(literal: str, then: int) -> Branch:
        return Branch(literal=literal, read="word", then=then)

    first, more, key_end, value, value_end = (base + n for n in (1, 3, 6, 8, 10))
    return (
        (Branch(literal=">", read="word", field="name", then=first),),
        (tag("<tool_sep:", first + 1), tag("<arg_key:", more + 1), tag("</tool_call:", more + 2)),
        (Branch(literal=">", then=more),),
        (tag("<arg_key:", more + 1), tag("</tool_call:", more + 2)),
        (Branch(literal=">", read="word", field="key", then=key_end),),
        (Branch(literal=">"),),
        (tag("</arg_key:", key_end + 1),),
        (Branch(literal=">", then=value),),
        (tag("<arg_value:", value + 1),),
        (Branch(literal=">", read="text", field="value", then=value_end),),
        (tag("</arg_value:", value_end + 1),),
        (Branch(literal=">", then=more),),
    )


_HUNYUAN: Final = Grammar(
    syntaxes=(
        *section("<tool_calls>", "<tool_call>", _hunyuan_call, "</tool_calls>", closer="</tool_call>"),
        BlockSyntax(
            opener="<tool_calls:",
            closer="</tool_call:",
            body=(
                (Branch(read="word", then=1),),
                (Branch(literal=">", then=2),),
                (Branch(literal="<tool_call:", read="word", then=3),),
                *_suffixed_call(3),
            ),
        ),
        BlockSyntax(
            opener="<tool_call:",
            closer="</tool_call:",
            body=((Branch(read="word", then=1),), *_suffixed_call(1)),
        ),
        BlockSyntax(
            opener="</tool_calls:", anchor="after", body=((Branch(read="word", then=1),), (Branch(literal=">"),))
        ),
    )
)
HUNYUAN3: Final = make_format(
    "hunyuan3",
    _HUNYUAN,
    _layout("<tool_call>", "</tool_call>", "\n", name_end="<tool_sep>", first="<tool_calls>\n", last="\n</tool_calls>"),
    notes=VERBATIM,
    models=Models(
        call="`<tool_calls>` with `<tool_call>NAME<tool_sep>` and GLM's tags; each tag may end with `:SUFFIX`",
        text="Hunyuan 3",
        names=(r"(hunyuan|hy)[-_]?3(?![0-9b])",),
        templates=(("<tool_sep>", "<arg_key>", "</arg_key>"),),
    ),
    template_tokens=HUNYUAN,
    elsewhere=opened_by(_HUNYUAN, "<tool_calls>", "<tool_calls:"),
)
HUNYUAN4: Final = make_format(
    "hunyuan4",
    _HUNYUAN,
    _layout("<tool_call>", "</tool_call>", "", first="<tool_calls>", last="</tool_calls>"),
    notes=VERBATIM,
    models=Models(
        call="as `hunyuan3`, without `<tool_sep>`; each reads both",
        text="Hunyuan 4",
        names=(r"(hunyuan|hy)[-_]?4(?![0-9b])",),
        templates=(("<tool_calls>", "<arg_key>"),),
    ),
    template_tokens=HUNYUAN,
    elsewhere=(),
)

# --- K2 Horizon, Solar Open 2 ---------------------------------------------------------------------------------------


def _horizon(base: int) -> tuple[Node, ...]:
    """Returns the nodes after `<ifm|tool_call>`: a name and pairs, perhaps with types, or JSON."""
    end = "</ifm|tool_call>"
    return (
        (
            Branch(read="object", field="call", then=base + 6),
            Branch(read="array", field="calls", then=base + 6),
            Branch(read="word", field="name", then=base + 1),
        ),
        (Branch(literal="<ifm|arg_key>", read="word", field="key", then=base + 2), Branch(literal=end)),
        (Branch(literal="</ifm|arg_key>", then=base + 3),),
        (
            Branch(literal="<ifm|arg_type>", read="word", then=base + 4),
            Branch(literal="<ifm|arg_value>", read="text", field="value", then=base + 5),
        ),
        (Branch(literal="</ifm|arg_type>", then=base + 3),),
        (Branch(literal="</ifm|arg_value>", then=base + 1),),
        (Branch(literal=end),),
    )


K2_HORIZON: Final = make_format(
    "k2_horizon",
    Grammar(
        syntaxes=tuple(
            section(
                "<ifm|tool_calls>", "<ifm|tool_call>", _horizon, "</ifm|tool_calls>", closer="</ifm|tool_call>",
                parameters=("arguments", "parameters"),
            )
        ),
        reasoning=tuple((f"<ifm|{word}>", f"</ifm|{word}>") for word in ("think", "think_fast", "think_faster")),
    ),
    _layout(
        "<ifm|tool_call>", "</ifm|tool_call>", "\n", prefix="ifm|arg_", first="<ifm|tool_calls>\n", last="\n</ifm|tool_calls>"
    ),
    notes=VERBATIM,
models=Models(call="`<ifm|tool_calls>` with GLM's tags, each value with its type",
        text="K2 Horizon", names=(r"k2[-_]?(horizon|v3)",), templates=(("<ifm|tool_call>",),)), template_tokens=(*_K2_HORIZON_TOKENS, *CHATML))  # fmt: skip

SOLAR_OPEN2: Final = make_format(
    "solar_open2",
    Grammar(
        syntaxes=(
            BlockSyntax(
                opener="<|tool_call:start|>",
                closer="<|tool_call:end|>",
                body=(
                    (Branch(read="word", field="name", then=1),),
                    *pairs(1, "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>", "<|tool_call:end|>"),
                ),
            ),
        )
    ),
    Layout(
        opener="<|tool_call:start|>",
        name="plain",
        middle="\n",
        arguments=Tagged(
            opener="<|tool_arg:start|>",
            strings="<|tool_arg:value|>",
            closer="<|tool_arg:end|>\n",
            stops=("<|tool_arg:end|>",),
        ),
        closer="<|tool_call:end|>",
        separator="\n",
    ),
    notes=VERBATIM,
    models=Models(
        call="`<|tool_call:start|>NAME<|tool_arg:start|>KEY<|tool_arg:value|>VALUE<|tool_arg:end|><|tool_call:end|>`",
        text="Solar Open 2",
        names=(r"solar[-_]?open[-_]?2",),
        templates=(("<|tool_call:start|>",),),
    ),
    template_tokens=_SOLAR_TOKENS,
)
