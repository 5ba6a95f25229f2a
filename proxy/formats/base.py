"""What a tool-call format is: a value that says how calls are written into a prompt and found again in text.

Law: for every call and every split `scan(render_call(call)) == call`; for text without a complete opener the scanner
gives the text back byte for byte; a tool result that contains an opener never parses as a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, Protocol

from toolwire.formats.engine.escaping import Escaping
from toolwire.formats.engine.layout import FUNCTION, Layout, Tagged
from toolwire.formats.engine.listing import Listing
from toolwire.formats.engine.markers import MarkerSet
from toolwire.formats.engine.reading_back import Fields, fields_of
from toolwire.formats.engine.rendering import prompt_name, prompt_parameters
from toolwire.formats.engine.restoring import Escapes
from toolwire.formats.engine.results import TOOL_RESPONSE, ResultForm
from toolwire.formats.engine.templates import ALL, tokens
from toolwire.formats.engine.values import Syntax
from toolwire.formats.engine.words import COMMON, Words, words_of
from toolwire.formats.gbnf.grammar import STANDARD, Around, Bounds, Inexpressible, answer_grammar
from toolwire.formats.gbnf.tags import structural_tag
from toolwire.model import ToolResult, ToolSpec, ToolUse
from toolwire.scan._grammar import BlockSyntax, Branch, Grammar

__all__ = [
    "VERBATIM",
    "BlockSyntax",
    "Branch",
    "Grammar",
    "Layout",
    "Tagged",
    "ToolFormat",
    "tagged_answer",
    "whole_answer",
    "written",
]


class AnswerGrammar(Protocol):
    """Makes the grammar of an answer that calls one of the tools, or several if `parallel`, with nothing around the
    calls. Raises `toolwire.formats.gbnf.grammar.Inexpressible` if there is no such grammar."""

    def __call__(self, tools: Sequence[ToolSpec], parallel: bool, bounds: Bounds = ...) -> str: ...


@dataclass(
    frozen=True, slots=True, kw_only=True, eq=False, repr=False
)  # compared, and looked up, as the very same object
class ToolFormat:
    """A way to write tool calls as text.

    `template` is the prompt segment that teaches tools, with four placeholders: `instructions` says how to write a call
    (`{format}`), `render_tools` writes the offer (`{tools}`). `render_call` writes an earlier call as the model should
    have written it, `render_result` the answer to one, `results` all answers of a turn. `listing` writes the offer for
    the markers of a whole route; None: `render_tools` writes it for the format's own.
    `render_calls` writes several calls of one answer; None: one block after the other. `gbnf` gives a grammar in
    llama.cpp's notation; None if the format has none. `layout` is how calls look, if nothing but it decides
    that: from it come the grammars of answers in which calls stand among other things (R23.2), structural tags, and
    history, written for the markers of a whole route, as results are by `results`. `alone`: calls count only where they
    are a whole message. `json_answer`: a JSON object with the keys `name` and `arguments` is an answer
    that calls, so a backend that enforces JSON Schemas can enforce calls (R10.10). `own_id` is for formats whose calls
    have ids: the id of a call as a model writes it that has made so many calls in the conversation before; the call's
    own if that has such a form. `framing` is for formats whose models put markup around what they say, too: what
    vanishes, and what is thought, in an answer that cannot call. `special_tokens`: its markers may be special tokens of
    the model, which servers leave out of the text unless they are told. `template_tokens` are the control tokens of the
    models that the format is made for: data in a prompt holds none.
    """

    name: str
    grammar: Grammar
    instructions: str
    render_tools: Callable[[Sequence[ToolSpec]], str]
    render_call: Callable[[ToolUse], str]
    render_result: Callable[[ToolResult], str]
    render_calls: Callable[[Sequence[ToolUse]], str] | None = None
    gbnf: AnswerGrammar | None = None
    alone: bool = False
    json_answer: bool = False
    own_id: Callable[[ToolUse, int], str] | None = None
    framing: Grammar | None = None
    special_tokens: bool = False
    layout: Layout | None = None
    template: str = COMMON
    results: ResultForm = TOOL_RESPONSE
    listing: Listing | None = None
    template_tokens: frozenset[str] = ALL

    def __repr__(self) -> str:
        return f"<ToolFormat {self.name}>"


@lru_cache(maxsize=256)  # a pure function of frozen values; there are few, and it is slow
def escaping_for(tool_format: ToolFormat, also: tuple[str, ...] = ()) -> Escaping:
    """For data in a prompt that teaches the format. `also` are what else a route reads as markers."""
    markers = (*tool_format.grammar.markers, *tool_format.template_tokens, *tool_format.results.markers, *also)
    return Escaping(MarkerSet(markers, begins=tool_format.grammar))


@lru_cache(maxsize=256)
def escaping_in_calls(tool_format: ToolFormat, also: tuple[str, ...] = (), *, ends: bool = True) -> Escaping:
    """For the arguments of earlier calls. There the scanner takes nothing for a marker but what would end a string that
    stands there as it is (`ends`: that is escaped). A server takes its control tokens, and many templates cut messages
    at tags of reasoning. All else stays."""
    grammar = tool_format.grammar
    thoughts = [tag for tags in grammar.reasoning for tag in tags]
    always = (*tool_format.template_tokens, *thoughts, *also)
    raw = tool_format.layout is not None and isinstance(tool_format.layout.arguments, Tagged | Syntax)
    return Escaping((*always, *(grammar.value_ends if raw else ())), bare=None if ends else always)


def earlier_calls(
    tool_format: ToolFormat, uses: Sequence[ToolUse], also: tuple[str, ...] = (), escapes: Escapes | None = None
) -> str:
    """Calls as the model should have written them, in a format with a layout. What would end a value is only escaped
    where the scanner would take it for that: it is tried. `escapes` notes what was escaped."""
    layout = tool_format.layout
    assert layout is not None
    made = Escapes()
    escaping = escaping_in_calls(tool_format, also)
    if isinstance(layout.arguments, Tagged | Syntax):  # in JSON a character is spelled otherwise, which means the same
        escaping = escaping.noting(made)
    text = layout.calls(uses, escaping)
    if isinstance(layout.arguments, Tagged) and any(
        escaping.holds(use.arguments) or "\\u" in use.arguments for use in uses
    ):
        fewer = Escapes()
        plain = layout.calls(uses, escaping_in_calls(tool_format, also, ends=False).noting(fewer))
        if plain != text and _reads_alike(tool_format.grammar, plain, text, escaping):
            text, made = plain, fewer
    if escapes is not None and made:
        escapes.forms |= made.forms
    return text


def _reads_alike(grammar: Grammar, plain: str, text: str, escaping: Escaping) -> bool:
    read, wanted = fields_of(grammar, plain), fields_of(grammar, text)

    def original(fields: Fields) -> Fields:
        return [(field, escaping.restore(value)) for field, value in fields]

    return bool(read and wanted) and original(read or []) == original(wanted or [])


VERBATIM: Final = (
    "A string is written as it is, without quotes and without escapes, also over several lines; anything else as JSON."
)
"""What models have to know of tagged arguments."""


def written(
    name: str,
    grammar: Grammar,
    layout: Layout,
    instructions: str | None = None,
    *,
    notes: str = "",
    alone: bool = False,
    json_answer: bool = False,
    framing: Sequence[BlockSyntax] = (),
    special_tokens: bool = True,
    template_tokens: Iterable[str] | None = None,
    words: Words | None = None,
) -> ToolFormat:
    """A format whose calls look as `layout` says, in `words`: by default those of its family (`words_of`).

    `instructions`: by default the family's, else those of `teach`, which gets `notes`. `framing`: see `ToolFormat`; the
    syntaxes without those that read calls. `special_tokens`: a marker that is a tag may be one; not so where the tags
    are the gateway's own. `template_tokens`: by default those that are known for a format of this name, else all.
    """
    words = words or words_of(name)
    made = ToolFormat(
        name=name,
        grammar=grammar,
        instructions=instructions or words.form or teach(layout, notes, alone=alone),
        render_tools=lambda tools: words.tools(tools, escaping_for(made)),
        render_call=lambda use: earlier_calls(made, (use,)),
        render_calls=lambda uses: earlier_calls(made, uses),
        render_result=lambda result: _rendered_result(result, made),
        gbnf=partial(_answer, layout),
        alone=alone,
        json_answer=json_answer,
        own_id=layout.own_id if layout.ids else None,
        framing=Grammar(syntaxes=tuple(framing), reasoning=grammar.reasoning) if framing else None,
        special_tokens=special_tokens and any(marker[0] in "<[" for marker in grammar.markers),
        layout=layout,
        template=words.template,
        results=words.results,
        listing=words.tools,
        template_tokens=tokens(name) if template_tokens is None else frozenset(template_tokens),
    )
    return made


def _rendered_result(result: ToolResult, tool_format: ToolFormat) -> str:
    escaping = escaping_for(tool_format)
    return escaping.compose(tool_format.results.pieces((result,), escaping))


RESULT_FOLLOWS: Final = "The result follows in the next message; never write a result yourself."
"""What models have to know of results."""


def teach(layout: Layout, notes: str = "", *, alone: bool = False) -> str:
    """Instructions that show a call in `layout` and say what holds for every format."""
    if alone:
        form = "To call a tool, let the whole answer be in exactly this form, with no other text:"
        only = "Put no Markdown fence around it."
    else:
        form = "To call a tool, write a block in exactly this form:"
        only = "Put no Markdown fence around the block."
    said = " ".join(filter(None, (notes, only, RESULT_FOLLOWS)))
    return f"{form}\n{layout.form()}\n{said}"


def call_form(tool_format: ToolFormat) -> str:
    """A call as instructions show it. A format without a layout only has calls of tools."""
    layout = tool_format.layout
    return tool_format.render_call(ToolUse("", FUNCTION, "{}")) if layout is None else layout.form()


def whole_answer(
    tool_format: ToolFormat, tools: Sequence[ToolSpec], parallel: bool, bounds: Bounds = STANDARD, *, around: Around
) -> str:
    """The grammar of an answer in which calls of this format stand among other things. Raises `Inexpressible` if there
    is none."""
    if tool_format.layout is None:
        raise Inexpressible(f"nothing says how {tool_format.name} is written")
    return answer_grammar(
        _schemas(tools),
        parallel,
        tool_format.layout,
        bounds,
        reads=tool_format.grammar,
        framing=tool_format.framing,
        around=around,
    )


def tagged_answer(
    tool_format: ToolFormat,
    tools: Sequence[ToolSpec],
    parallel: bool,
    bounds: Bounds = STANDARD,
    *,
    demanded: bool = False,
) -> dict[str, Any]:
    """The same as a structural tag; with `demanded` a call must come. Raises `Inexpressible` if there is none."""
    if tool_format.layout is None:
        raise Inexpressible(f"nothing says how {tool_format.name} is written")
    return structural_tag(
        _schemas(tools), parallel, tool_format.layout, bounds, reads=tool_format.grammar, demanded=demanded
    )


def _answer(layout: Layout, tools: Sequence[ToolSpec], parallel: bool, bounds: Bounds = STANDARD) -> str:
    return answer_grammar(_schemas(tools), parallel, layout, bounds)


def _schemas(tools: Sequence[ToolSpec]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """By the names under which they are taught: the schemas of the tools' arguments."""
    return ((prompt_name(tool), prompt_parameters(tool)) for tool in tools)
