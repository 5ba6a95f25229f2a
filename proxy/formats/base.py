"""A tool-call format: a value that describes how calls are written into a prompt and found in text.

Law: for every call and every split, `scan(render_call(call)) == call`. The scanner returns text without a complete
opener byte for byte. A tool result that contains an opener never parses as a call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Final, Protocol, cast

from ..events import Delta, Open
from ..fastparse import CallScanner
from ..model import ToolResult, ToolSpec, ToolUse
from ..scan._grammar import DROPPED, Block, BlockPolicy, BlockSyntax, Branch, Decision, Field, Grammar, Why
from .engine.escaping import Escaping
from .engine.layout import FUNCTION, Layout, Tagged
from .engine.listing import Listing
from .engine.markers import MarkerSet
from .engine.rendering import prompt_name, prompt_parameters
from .engine.results import TOOL_RESPONSE, Escapes, ResultForm
from .engine.templates import WITHOUT_FORMAT
from .engine.values import Syntax
from .engine.words import COMMON, Words
from .gbnf.grammar import STANDARD, AllowedText, GrammarBounds, Inexpressible, answer_grammar
from .gbnf.tags import structural_tag

__all__ = [
    "VERBATIM",
    "BlockSyntax",
    "Branch",
    "Grammar",
    "Layout",
    "Models",
    "Tagged",
    "ToolFormat",
    "make_format",
    "tagged_answer",
    "whole_answer",
]


class AnswerGrammar(Protocol):
    """Returns the GBNF grammar of an answer that calls one of the tools (several if `parallel`), with no text around
    the calls. Raises `toolwire.formats.gbnf.grammar.Inexpressible` if there is no such grammar."""

    def __call__(self, tools: Sequence[ToolSpec], parallel: bool, bounds: GrammarBounds = ...) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The models that a format is made for.

    - `text` names them, and `call` shows or describes one of their calls: a row of `docs/reference/formats.md`.
    - `names` are regular expressions for their names, in lower case, from the beginning of a word. Of several formats
      the one with the longest match is used.
    - `derived` are such expressions for models whose names may also contain the name of another family, from which they
      are derived. They are tried before all `names`.
    - `templates` are literals that occur together in their chat templates. Of several formats the one with the most
      characters is used.
    """

    text: str = ""
    call: str = ""
    names: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()
    templates: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)  # compared by identity
class ToolFormat:
    """A way to write tool calls as text.

    - `template` is the prompt segment that teaches tools. It has four placeholders: `{policy}`, `{tools}` (filled by
      `render_tools`), `{format}` (filled by `instructions`: how to write a call) and `{examples}`.
    - `render_call` writes an earlier call as the model should have written it, `render_calls` several calls of one
      answer (None: one block after another), `render_result` one result, `results` all results of a turn.
    - `listing` writes the tools while escaping the markers of a whole route; None: `render_tools`, which escapes only
      the format's own markers.
    - `gbnf` returns a grammar in llama.cpp's notation; None if the format has none.
    - `layout` is the form of calls, if it determines them completely. From it come grammars of answers with calls and
      text (R23.2), structural tags, and history with the markers of a whole route escaped.
    - `alone`: calls count only if they are the whole message.
    - `json_answer`: a JSON object with the keys `name` and `arguments` is a call, so a server that enforces JSON
      Schemas can enforce calls (R10.10).
    - `own_id` returns the id that the model would write for a call, given the number of earlier calls in the
      conversation; it keeps the call's own id if that has the right form. None for formats without ids.
    - `framing` is for models that also put markup around their text: the grammar for answers that cannot contain calls.
      It removes the markup and finds the reasoning.
    - `special_tokens`: markers may be special tokens of the model, which servers omit from the text unless told
      otherwise.
    - `models` are the models that the format is made for.
    - `aliases` are further names of the format.
    - `elsewhere` are the syntaxes by which routes with other formats recognise its calls.
    - `own_tokens` are the control tokens of the format's models, which are escaped in prompt data.
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
    models: Models = Models()
    aliases: tuple[str, ...] = ()
    elsewhere: tuple[BlockSyntax, ...] = ()
    own_tokens: frozenset[str] | None = None

    @property
    def template_tokens(self) -> frozenset[str]:
        """The control tokens of the format's models; those of all known families if it may be taught to any model."""
        return control_tokens() if self.own_tokens is None else self.own_tokens

    def __repr__(self) -> str:
        return f"<ToolFormat {self.name}>"


@lru_cache(maxsize=256)  # a pure function of frozen values; there are few, and it is slow
def escaping_for(tool_format: ToolFormat, also: tuple[str, ...] = ()) -> Escaping:
    """Returns the escaping for data in a prompt that teaches the format. `also` are further markers that the route
    reads."""
    markers = (*tool_format.grammar.markers, *tool_format.template_tokens, *tool_format.results.markers, *also)
    return Escaping(MarkerSet(markers, begins=tool_format.grammar))


@lru_cache(maxsize=256)
def escaping_in_calls(tool_format: ToolFormat, also: tuple[str, ...] = (), *, ends: bool = True) -> Escaping:
    """Returns the escaping for the arguments of earlier calls. There the scanner reacts only to the end of a raw string
    (escaped if `ends`). Servers react to control tokens, and many templates cut messages at reasoning tags, so both are
    escaped. Everything else stays."""
    grammar = tool_format.grammar
    thoughts = [tag for tags in grammar.reasoning for tag in tags]
    always = (*tool_format.template_tokens, *thoughts, *also)
    raw = tool_format.layout is not None and isinstance(tool_format.layout.arguments, Tagged | Syntax)
    return Escaping((*always, *(grammar.value_ends if raw else ())), bare=None if ends else always)


def earlier_calls(
    tool_format: ToolFormat, uses: Sequence[ToolUse], also: tuple[str, ...] = (), escapes: Escapes | None = None
) -> str:
    """Returns calls as the model should have written them, in a format with a layout. Text that looks like the end of a
    value is escaped only if the scanner really stops there, which is tried out. `escapes` collects the escapes made."""
    layout = tool_format.layout
    assert layout is not None
    made = Escapes()
    escaping = escaping_in_calls(tool_format, also)
    if isinstance(layout.arguments, Tagged | Syntax):  # JSON needs no undoing: it uses `\uXXXX` for the character
        escaping = escaping.noting(made.forms)
    text = layout.calls(uses, escaping)
    if isinstance(layout.arguments, Tagged) and any(
        escaping.holds(use.arguments.replace('\\"', '"')) or "\\u" in use.arguments for use in uses
    ):
        fewer = Escapes()
        plain = layout.calls(uses, escaping_in_calls(tool_format, also, ends=False).noting(fewer.forms))
        if plain != text and _reads_alike(tool_format.grammar, plain, text, escaping):
            text, made = plain, fewer
    if escapes is not None and made:
        escapes.forms |= made.forms
    return text


def _reads_alike(grammar: Grammar, plain: str, text: str, escaping: Escaping) -> bool:
    read, expected = fields_of(grammar, plain), fields_of(grammar, text)

    def original(fields: Fields) -> Fields:
        return [(field, escaping.restore(value)) for field, value in fields]

    return bool(read and expected) and original(read or []) == original(expected or [])


VERBATIM: Final = (
    "A string is written as it is, without quotes and without escapes, also over several lines; anything else as JSON."
)
"""A sentence for a format's instructions if its arguments stand between tags."""


def make_format(
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
    models: Models | None = None,
    aliases: tuple[str, ...] = (),
    elsewhere: Sequence[BlockSyntax] | None = None,
) -> ToolFormat:
    """Returns a format whose calls are written as in `layout`, with the wording of `words`.

    `instructions`: default those of `words`, else those of `teach`, which gets `notes`. `framing`: see `ToolFormat`;
    only the syntaxes without calls. `special_tokens`: whether a marker that is a tag may be a special token; False if
    the tags are the gateway's own. `template_tokens`: default those of all known families. `elsewhere`: see
    `ToolFormat`; default all of the grammar that have an opener; none if another format's syntaxes read the same calls,
    or if the openers are ordinary text.
    """
    words = words or Words()
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
        models=models or Models(),
        aliases=aliases,
        elsewhere=tuple(grammar.syntaxes if elsewhere is None else elsewhere),
        own_tokens=None if template_tokens is None else frozenset(template_tokens),
    )
    return made


def _rendered_result(result: ToolResult, tool_format: ToolFormat) -> str:
    escaping = escaping_for(tool_format)
    return escaping.compose(tool_format.results.pieces((result,), escaping))


RESULT_FOLLOWS: Final = "The result follows in the next message; never write a result yourself."
"""A sentence about results, which all instructions contain."""


def teach(layout: Layout, notes: str = "", *, alone: bool = False) -> str:
    """Returns instructions that show a call in `layout` and state the rules common to all formats."""
    if alone:
        form = "To call a tool, let the whole answer be in exactly this form, with no other text:"
        only = "Put no Markdown fence around it."
    else:
        form = "To call a tool, write a block in exactly this form:"
        only = "Put no Markdown fence around the block."
    rules = " ".join(filter(None, (notes, only, RESULT_FOLLOWS)))
    return f"{form}\n{layout.form()}\n{rules}"


def call_form(tool_format: ToolFormat) -> str:
    """Returns a call of this format with placeholders, as instructions show it."""
    layout = tool_format.layout
    return tool_format.render_call(ToolUse("", FUNCTION, "{}")) if layout is None else layout.form()


def whole_answer(
    tool_format: ToolFormat,
    tools: Sequence[ToolSpec],
    parallel: bool,
    bounds: GrammarBounds = STANDARD,
    *,
    around: AllowedText,
) -> str:
    """Returns the GBNF grammar of an answer in which calls of this format stand among other text (`around`). Raises
    `Inexpressible` if there is none."""
    if tool_format.layout is None:
        raise Inexpressible(f"the format {tool_format.name} has no layout")
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
    bounds: GrammarBounds = STANDARD,
    *,
    demanded: bool = False,
) -> dict[str, Any]:
    """Returns xgrammar's structural tag for an answer in which calls of this format stand among other text; with
    `demanded` the answer must contain a call. Raises `Inexpressible` if there is none."""
    if tool_format.layout is None:
        raise Inexpressible(f"the format {tool_format.name} has no layout")
    return structural_tag(
        _schemas(tools), parallel, tool_format.layout, bounds, reads=tool_format.grammar, demanded=demanded
    )


def _answer(layout: Layout, tools: Sequence[ToolSpec], parallel: bool, bounds: GrammarBounds = STANDARD) -> str:
    return answer_grammar(_schemas(tools), parallel, layout, bounds)


def _schemas(tools: Sequence[ToolSpec]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Returns pairs of a tool's taught name and the schema of its arguments."""
    return ((prompt_name(tool), prompt_parameters(tool)) for tool in tools)


# --- the built-in formats ---------------------------------------------------------------------------------------------


_FAMILIES: Final = f"{__package__}.families"
_AUTO: Final = f"{__package__}.recognised.auto"
"""The module of the format that is made of the others."""


def _formats_of(module: str) -> dict[str, ToolFormat]:
    """Returns the formats that a module defines, by their dotted paths."""
    found = vars(import_module(module)).items()
    return {f"{module}:{attribute}": value for attribute, value in found if isinstance(value, ToolFormat)}


@cache
def _defined() -> Mapping[str, ToolFormat]:
    """Returns the formats of all families by their dotted paths: modules by name, in each the formats as they are
    defined."""
    names = sorted(module.name for module in iter_modules([str(Path(__file__).parent / "families")]))
    return {path: made for name in names for path, made in _formats_of(f"{_FAMILIES}.{name}").items()}


def families() -> tuple[ToolFormat, ...]:
    """Returns the built-in formats except `auto`."""
    return tuple(_defined().values())


@cache
def control_tokens() -> frozenset[str]:
    """Returns the control tokens of all known models, for a format that may be taught to any model."""
    return WITHOUT_FORMAT.union(*(made.own_tokens or () for made in families()))


@cache  # it lists a folder, and `open_scanner` may call it while an answer begins
def builtin_formats() -> Mapping[str, str]:
    """Returns the dotted paths of the built-in formats by their names and aliases."""
    found = {**_formats_of(_AUTO), **_defined()}
    return {name: path for path, made in found.items() for name in (made.name, *made.aliases)}


# --- reading written calls back, to check that a value survives unchanged ---------------------------------------------


_SLICE_CHARS: Final = 64 * 1024

Fields = list[tuple[Field, str]]


class _Recorder:
    """A call policy that only records the fields it is shown."""

    strict = False
    unwrap = True
    callable_names: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.fields: Fields = []
        self.failed = False

    def block(self, block: Block) -> Decision:
        self.fields += block.pieces
        self.failed = self.failed or block.broken or not block.closed
        return DROPPED

    def unfinished(self, syntax: BlockSyntax, body: str, why: Why) -> Decision:
        self.failed = True
        return DROPPED

    def may_call(self, name: str, untaught: bool) -> bool:
        return True

    def opening(self, syntax: BlockSyntax, pieces: Any) -> None:
        return None


def fields_of(grammar: Grammar, text: str) -> Fields | None:
    """Returns the fields of all blocks in a text that consists of blocks only, or None for any other text."""
    recorder = _Recorder()
    scanner = CallScanner(grammar, cast(BlockPolicy, recorder), block_bytes=4 * len(text) + 1)
    events = [
        event
        for start in range(0, len(text), _SLICE_CHARS)
        for event in scanner.feed(text[start : start + _SLICE_CHARS])
    ]
    events += scanner.finish()
    if recorder.failed or any(isinstance(event, Open | Delta) for event in events):
        return None
    return recorder.fields
