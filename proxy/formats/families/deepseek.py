"""DeepSeek V3, R1 (arguments in a Markdown fence) and V3.1 (without). Later versions are in `dsml.py`.

The bar is U+FF5C (ASCII is read too), the underscore U+2581. Both formats have the same markers, so each reads both. A
tool called `function` cannot be distinguished from V3's keyword `function`.
"""

from __future__ import annotations

from typing import Final

from ...scan._grammar import BlockSyntax, Branch, Grammar, Node
from ..base import Models, make_format
from ..engine.layout import Layout
from ..engine.listing import headings
from ..engine.results import ResultForm
from ..engine.syntaxes import section
from ..engine.templates import DEEPSEEK
from ..engine.words import Words, around

_DEEPSEEK_V3_WORDS: Final = Words(
    results=ResultForm(
        "<｜tool▁output▁begin｜>",
        "<｜tool▁output▁end｜>",
        first="<｜tool▁outputs▁begin｜>",
        last="<｜tool▁outputs▁end｜>",
    )
)

_DEEPSEEK_V31_WORDS: Final = Words(
    template=around("You have access to the following tools:\n\n"),
    tools=headings,
    results=ResultForm("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>", separator=""),
)


_CALL: Final = "<｜tool▁call▁begin｜>"
_SEP: Final = "<｜tool▁sep｜>"
_CALL_END: Final = "<｜tool▁call▁end｜>"
_SECTION: Final = "<｜tool▁calls▁begin｜>"
_SECTION_END: Final = "<｜tool▁calls▁end｜>"


def _syntaxes(bar: str) -> list[BlockSyntax]:
    """Returns the syntaxes with `bar` as the bar; models and servers also write it in ASCII."""

    def spelt(token: str) -> str:
        return token.replace("｜", bar)

    def call(base: int) -> tuple[Node, ...]:
        return (
            (
                Branch(literal=f"function{spelt(_SEP)}", read="word", field="name", then=base + 1),
                Branch(read="word", field="name", then=base + 2),
            ),
            (Branch(literal="```", then=base + 3), Branch(read="object", field="arguments", then=base + 6)),
            (Branch(literal=spelt(_SEP), read="object", field="arguments", then=base + 5),),
            (Branch(literal="json", then=base + 4), Branch(read="object", field="arguments", then=base + 6)),
            (Branch(read="object", field="arguments", then=base + 6),),
            (Branch(literal=spelt(_CALL_END)),),
            (Branch(literal="```", then=base + 5), Branch(literal=spelt(_CALL_END))),
        )

    return section(spelt(_SECTION), spelt(_CALL), call, spelt(_SECTION_END), tokens=True, closer=spelt(_CALL_END))


GRAMMAR: Final = Grammar(syntaxes=(*_syntaxes("｜"), *_syntaxes("|")))

V3: Final = make_format(
    "deepseek_v3",
    GRAMMAR,
    Layout(
        first=_SECTION,
        opener=f"{_CALL}function{_SEP}",
        name="plain",
        middle="\n```json\n",
        closer=f"\n```{_CALL_END}",
        separator="\n",
        last=_SECTION_END,
    ),
    models=Models(
        call="`<｜tool▁calls▁begin｜>`, in each call a fence with the arguments",
        text="DeepSeek V3, R1, Cogito v2.1",
        names=(r"deepseek[-_.]?(v3|r1)(?![0-9])",),
        derived=(r"deepseek[-_.]?r1[-_]0528", r"cogito[-_.:]?(v?2[._p-]1|.*(671b|deepseek))"),
        templates=(("<｜tool▁calls▁begin｜>", "```json"),),
    ),
    template_tokens=DEEPSEEK,
    words=_DEEPSEEK_V3_WORDS,
    elsewhere=(),
)

V31: Final = make_format(
    "deepseek_v31",
    GRAMMAR,
    Layout(first=_SECTION, opener=_CALL, name="plain", middle=_SEP, closer=_CALL_END, last=_SECTION_END),
    models=Models(
        call="as `deepseek_v3`, without fence; each reads both",
        text="DeepSeek V3.1, V3.2-Exp",
        names=(r"deepseek[-_.]?v3[._p-](1|2[-_]?exp)(?![0-9])",),
        templates=(("<｜tool▁calls▁begin｜>",),),
    ),
    template_tokens=DEEPSEEK,
    words=_DEEPSEEK_V31_WORDS,
)
