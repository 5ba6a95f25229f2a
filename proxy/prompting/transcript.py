"""Converts a conversation with tools to one that a text-only chat backend understands (R5). Pure functions.

Rules of this module:

1. A request without tools and without earlier calls or results is returned as the same object.
2. Every tool result appears exactly once, directly after the message with its call, in the order of the calls; a result
   of an unknown call stays where it was (R5.8, C14).
3. Results and the texts of user and assistant are data: afterwards they contain no marker of the format and no control
   token of a chat template (R5.6). System and developer messages are instructions and stay unchanged.
4. A message is composed of data and `Markup` first and then escaped once, because a marker may begin in one piece and
   end in another.
5. The model sees earlier calls only in a form that the route's scanner reads (R5.7), unless `native` is configured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import groupby
from typing import Final, Literal, NamedTuple

from ..call_policy.ids import is_gateway_id
from ..formats.base import ToolFormat, earlier_calls, escaping_for
from ..formats.engine.escaping import SLICE_CHARS, Escaping, Markup, Pieces
from ..formats.engine.layout import plain_name
from ..formats.engine.longjson import compact
from ..formats.engine.rendering import is_json_object, prompt_name, taught_arguments
from ..formats.engine.results import Escapes, EscapesMade, marked_text
from ..formats.recognised.brackets import MARKERS as BRACKET_MARKERS
from ..formats.recognised.brackets import RESULTS as BRACKET_RESULTS
from ..formats.recognised.brackets import attribute as bracket_attribute
from ..formats.recognised.brackets import is_word
from ..known.kinds import HISTORY, kinds_of
from ..known.past import Past, fold_items
from ..model import (
    Attempt,
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
    ToolUse,
    replace,
)
from .placing import Placement, place_segment

Flatten = Literal["sentinel", "bracket", "native"]

_NONE: Final = ToolChoice("none")

_Place = tuple[int, int]
"""The position of a call: message index, part index."""


def inject(
    request: ModelRequest,
    segment: str,
    tool_format: ToolFormat,
    *,
    placement: Placement = "append",
    flatten: Flatten = "sentinel",
    also: tuple[str, ...] = (),
    escapes: Escapes | None = None,
    reminder: str = "",
    wire: str | None = None,
    special_tokens: bool = False,
) -> ModelRequest:
    """Returns the request for a backend without tools: history as text, `segment` in its place, tools removed.

    An empty segment is not placed. `reminder` is added to the last message if that contains text of the user (R23.7).
    `also`: further markers that the route reads. `escapes` collects the escapes made, so that they can be undone in the
    answer. `wire` is the name of the backend's protocol, whose own parts are kept. `special_tokens`: ask the server to
    include them in its answer, if the request is changed at all.
    """
    past = request.past
    history = not kinds_of(request.messages, past).isdisjoint(HISTORY)
    if not segment and not history and not request.tools:
        return request
    messages: Sequence[Message] = request.messages
    if flatten != "native" and not history:
        bracket = flatten == "bracket"

        def writing(made: Escapes) -> Write:
            writer = TranscriptWriter(tool_format, bracket, also, made)
            return lambda message: writer.talk(message, message.parts)

        messages = write_each(messages, ("spoken", tool_format, bracket, also), writing, escapes, past)
        if escapes is not None and past is not None:  # else the writer has set them
            escapes.markers = escaping_of(tool_format, bracket, also).markers
    elif flatten != "native":
        bracket = flatten == "bracket"
        messages = flattened(messages, tool_format, bracket=bracket, also=also, escapes=escapes, past=past)
    messages = place_segment(messages, request.messages, segment, placement, reminder, wire, past)
    return replace(
        request,
        messages=tuple(messages),
        tools=(),
        tool_choice=_NONE,
        parallel_tool_calls=True,
        special_tokens=special_tokens or request.special_tokens,
    )


def guarded(
    request: ModelRequest, markers: frozenset[str], escapes: Escapes, roles: frozenset[str] | None = None
) -> ModelRequest:
    """Returns the request with `markers` escaped in the texts of messages in these `roles` (None: all). `escapes`
    collects the escapes made."""
    escaping = turn_escaping(markers)
    if escapes.markers is None:
        escapes.markers = escaping.markers

    def writing(made: Escapes) -> Write:
        return partial(_guard, escaping.noting(made.forms), roles)

    messages = write_each(request.messages, ("guarded", markers, roles), writing, escapes, request.past)
    return replace(request, messages=tuple(messages), guarded=True)


def _guard(noting: Escaping, roles: Container[str] | None, message: Message) -> Message:
    """Returns the message with its markers escaped, if its role is in `roles` (None: all)."""
    if roles is not None and message.role not in roles:
        return message
    if len(message.parts) == 1 and type(part := message.parts[0]) is Text:  # most messages
        text = noting.text(part.text)
        return message if text is part.text else replace(message, parts=(replace(part, text=text),))
    written: list[Part] = []
    for is_text, parts in groupby(message.parts, key=lambda part: isinstance(part, Text)):
        several = list(parts)
        if is_text:  # joined, because a marker may be split over two texts
            text = "\n".join(part.text for part in several if isinstance(part, Text))
            written.append(Text(noting.text(text)))
        else:
            written += several
    return replace(message, parts=tuple(written))


Write = Callable[[Message], Message]
"""Returns a message as the server gets it. The result must depend only on this message."""


def write_each(
    messages: Sequence[Message],
    key: Hashable,
    writing: Callable[[Escapes], Write],
    escapes: Escapes | None,
    past: Past | None,
) -> list[Message]:
    """Returns each message as the server gets it. `writing` returns the function that writes one message; its argument
    collects the escapes made, and all of them are added to `escapes`. `key`: see `fold_items`."""
    if past is None:
        return list(map(writing(Escapes() if escapes is None else escapes), messages))

    def step(before: EscapesMade, several: Sequence[Message], start: int, out: list[Message]) -> EscapesMade:
        made = Escapes()
        out += map(writing(made), several)
        return before.and_those(made)

    out, made = fold_items(past, key, messages, EscapesMade(), step)
    if escapes is not None:
        escapes.add(made)
    return out


@lru_cache(maxsize=64)
def turn_escaping(markers: frozenset[str]) -> Escaping:
    """Returns an escaping for texts that must not begin or end a turn."""
    return Escaping(markers)


# --- the history ----------------------------------------------------------------------------------------------------


def escaping_of(tool_format: ToolFormat, bracket: bool, also: tuple[str, ...]) -> Escaping:
    """Returns the escaping for the texts of a conversation in a format; `bracket`: its calls are written in
    brackets."""
    return escaping_for(tool_format, (*also, *BRACKET_MARKERS) if bracket else also)


def flattened(
    messages: Sequence[Message],
    tool_format: ToolFormat,
    *,
    bracket: bool = False,
    also: tuple[str, ...] = (),
    escapes: Escapes | None = None,
    past: Past | None = None,
) -> list[Message]:
    """Returns calls and results as text: calls in their assistant message, results as user messages directly after
    it."""
    step = partial(_flatten_more, tool_format, bracket, also)
    key = "flattened", tool_format, bracket, also
    out, flat = fold_items(past, key, messages, _Flat(frozenset(), 0, EscapesMade()), step, _before_results)
    if escapes is not None:
        escapes.markers = escaping_of(tool_format, bracket, also).markers
        escapes.add(flat.escapes)
    return out


class _Flat(NamedTuple):
    """The state after flattening some messages: the ids of their calls, the number of their calls, and the escapes
    made."""

    called: frozenset[str]
    calls: int
    escapes: EscapesMade


def _before_results(messages: Sequence[Message], at: int) -> int:
    """Moves a checkpoint at position `at` before the calls whose results stand there; at the end, before calls that
    still lack results. Returns the new position."""
    if at == len(messages):
        return _before_open_calls(messages)
    while at > 0 and any(isinstance(part, ToolResult) for part in messages[at].parts):
        at -= 1
    return at


def _before_open_calls(messages: Sequence[Message]) -> int:
    """Returns the position of the last message with calls if some of their results are missing, else the end."""
    answered: set[str] = set()
    for at in reversed(range(len(messages))):
        parts = messages[at].parts
        answered.update(part.call_id for part in parts if isinstance(part, ToolResult))
        called = {part.call_id for part in parts if isinstance(part, ToolUse)}
        if called or not any(isinstance(part, ToolResult) for part in parts):
            return len(messages) if called <= answered else at
    return len(messages)


def _flatten_more(
    tool_format: ToolFormat,
    bracket: bool,
    also: tuple[str, ...],
    before: _Flat,
    messages: Sequence[Message],
    start: int,
    out: list[Message],
) -> _Flat | None:
    """The step of `flattened`. Returns None if one of the messages has a result for a call before `start`, because that
    call was written without it."""
    paired = _answers(messages, before.called)
    if paired is None:
        return None
    answers, owner = paired
    escapes = Escapes()
    writer = TranscriptWriter(tool_format, bracket, also, escapes)
    own_id = None if bracket else tool_format.own_id
    made = before.calls
    called: list[str] = []
    for index, message in enumerate(messages):
        uses = [part for part in message.parts if isinstance(part, ToolUse)]
        orphans = [
            part
            for place, part in enumerate(message.parts)
            if isinstance(part, ToolResult) and (index, place) not in owner
        ]
        rest = tuple(part for part in message.parts if not isinstance(part, ToolUse | ToolResult))
        if uses:
            shown = uses
            if own_id is not None:
                shown = [replace(use, call_id=own_id(use, number)) for number, use in enumerate(uses, made)]
            made += len(uses)
            called += [use.call_id for use in uses]
            out += writer.calling(message, rest, shown)
            places = [place for place, part in enumerate(message.parts) if isinstance(part, ToolUse)]
            of_call = [answers.get((index, place), ()) for place in places]
            results = [
                # The model does not know an id that the gateway made.
                replace(
                    result,
                    call_id=own.call_id if is_gateway_id(result.call_id) else result.call_id,
                    name=result.name or prompt_name(own),
                )
                for own, found in zip(shown, of_call, strict=True)
                for result in found
            ]
            out += writer.results(results, apart=all(len(found) == 1 for found in of_call))
            continue
        out += writer.results(orphans, apart=len(orphans) == 1)
        if rest or not message.parts:
            out.append(writer.talk(message, rest))
    return _Flat(before.called.union(called), made, before.escapes.and_those(escapes))


def _answers(
    messages: Sequence[Message], before: Container[str] = ()
) -> tuple[dict[_Place, list[ToolResult]], dict[_Place, _Place]] | None:
    """Returns the results of each call, and the call of each result. A result belongs to the latest earlier message
    with a call of its id, because some clients restart counting in every turn. Within that message unanswered calls
    come first. Returns None if a result belongs to a call before these messages, whose ids are `before`."""
    answers: dict[_Place, list[ToolResult]] = {}
    owner: dict[_Place, _Place] = {}
    latest: dict[str, list[_Place]] = {}
    for index, message in enumerate(messages):
        here: dict[str, list[_Place]] = {}
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolUse):
                here.setdefault(part.call_id, []).append((index, place))
            elif isinstance(part, ToolResult):
                calls = latest.get(part.call_id)
                if calls is not None:
                    call = next((call for call in calls if call not in answers), calls[-1])
                    answers.setdefault(call, []).append(part)
                    owner[index, place] = call
                elif part.call_id in before:
                    return None
        latest.update(here)
    return answers, owner


def split_at(text: str, markers: Sequence[str]) -> list[str]:
    """Returns the texts between the markers, and the markers at odd indexes. Of several markers at one position the
    first one in `markers` counts (sorted by length, longest first). No search examines much more than `SLICE_CHARS`."""
    if not markers:
        return [text]
    pattern = re.compile("|".join(map(re.escape, markers)))
    pieces: list[str] = []
    done = at = 0
    while at < len(text):
        beyond = at + SLICE_CHARS
        for found in pattern.finditer(text, at, beyond + len(markers[0])):
            if found.start() >= beyond:
                break
            pieces += text[done : found.start()], found[0]
            done = found.end()
        at = max(beyond, done)
    return [*pieces, text[done:]]


class TranscriptWriter:
    """Writes calls, results and texts of one conversation as messages in one style. `also` are further markers of the
    route, `escapes` collects the escapes made."""

    def __init__(
        self, tool_format: ToolFormat, bracket: bool, also: tuple[str, ...], escapes: Escapes | None = None
    ) -> None:
        self.format = tool_format
        self.bracket = bracket
        self.alone = not bracket and tool_format.alone
        self._also = also
        self._escapes = escapes
        self._escaping = escaping_of(tool_format, bracket, also)
        if escapes is not None:
            escapes.markers = self._escaping.markers
            self._escaping = self._escaping.noting(escapes.forms)

    def talk(self, message: Message, parts: tuple[Part, ...]) -> Message:
        """Returns a message that has no calls or results, with its `parts` escaped."""
        role: Role = "user" if message.role == "tool" else message.role
        name = message.name
        if role in ("user", "assistant"):
            if len(parts) == 1 and type(part := parts[0]) is Text:  # most messages
                text = self._escaping.text(part.text)
                parts = parts if text is part.text else (Text(text),)
            else:  # neighbouring texts become one (R5.9)
                parts = self._composed(parts)
            name = None if name is None else self._escaping.text(name)
        unchanged = role == message.role and name == message.name and (parts is message.parts or parts == message.parts)
        return message if unchanged else replace(message, role=role, parts=parts, name=name)

    def _composed(self, parts: Sequence[Part | str]) -> tuple[Part, ...]:
        """Returns the parts of one message, with neighbouring texts merged. A template may join texts even if other
        parts stand between, so all texts are escaped together."""
        texts = [part for part in parts if isinstance(part, str | Text)]
        if texts and len(texts) == len(parts):
            return (Text(self._escaping.compose([piece for part in texts for piece in self._pieces(part)])),)
        written: list[Part | None] = []
        several: list[list[str]] = []
        for part in parts:
            if isinstance(part, str | Text):
                if not written or written[-1] is not None:
                    written.append(None)  # the place of a text
                    several.append([])
                several[-1] += self._pieces(part)
            else:
                written.append(self._other(part))
        whole = map(Text, self._escaping.compose_each(several))
        composed = [next(whole) if part is None else part for part in written]
        return tuple([part for part in composed if type(part) is not Text or part.text])  # some servers refuse ""

    def _pieces(self, part: Text | str) -> Pieces:
        """Returns a text as pieces to be composed. In an attempt (a failed answer that the model is shown) the format's
        markers are markup; reasoning tags, control tokens and markers of results are still data."""
        if isinstance(part, str):
            return (part,)
        if not isinstance(part, Attempt):
            return (part.text,)
        grammar = self.format.grammar
        thoughts = {tag.strip() for tags in grammar.reasoning for tag in tags}
        others = self.format.template_tokens.union(self.format.results.markers).difference(grammar.markers)
        found = [marker for marker in thoughts | others if marker in part.text]
        pieces = split_at(part.text, sorted(found, key=len, reverse=True))
        return [piece if place % 2 else Markup(piece) for place, piece in enumerate(pieces)]

    def _other(self, part: Part) -> Part:
        """Returns a part that is not visible text, with markers escaped in the fields that a template may write."""
        escape = self._escaping.text
        match part:
            case Refusal(text) if (safe := escape(text)) is not text:
                return Refusal(safe)
            case Reasoning(text) if (safe := escape(text)) is not text:
                return replace(part, text=safe)
            case OpaquePart(payload=Mapping() as payload):
                shown = {key: escape(value) if isinstance(value, str) else value for key, value in payload.items()}
                return part if shown == payload else replace(part, payload=shown)
        return part

    def calling(self, message: Message, rest: tuple[Part, ...], uses: Sequence[ToolUse]) -> list[Message]:
        """Returns an assistant message with calls as text: first its other parts (`rest`), then the calls. These are a
        message of their own in a format that reads calls only so."""
        calls = self.calls(uses)
        if self.alone and rest:  # such a format reads a call only if it is the whole message
            return [self.talk(message, rest), self._with(message, calls)]
        between = (Markup("\n"),) if rest and isinstance(rest[-1], Text) and rest[-1].text else ()
        return [self._with(message, (*rest, *between, *calls))]

    def _with(self, message: Message, parts: Sequence[Part | str]) -> Message:
        name = message.name if message.name is None else self._escaping.text(message.name)
        return Message(message.role, self._composed(parts), name, message.extra)

    def calls(self, uses: Sequence[ToolUse]) -> Pieces:
        """Returns the calls of one message as text."""
        if self.bracket:
            lines = [(Markup("\n"), *self._bracket_call(use)) for use in uses]
            return [piece for line in lines for piece in line][1:]
        if self.format.layout is not None:
            return (Markup(earlier_calls(self.format, uses, self._also, self._escapes)),)
        if self.format.render_calls is not None:
            return (Markup(self.format.render_calls(uses)),)
        return (Markup("\n".join(map(self.format.render_call, uses))),)

    def results(self, results: Sequence[ToolResult], *, apart: bool) -> list[Message]:
        """Returns the results in one user message; none if there are none. Images follow the text of their result.
        `apart`: the order of the results identifies their calls."""
        form = BRACKET_RESULTS if self.bracket else self.format.results
        parts: list[Part | str] = []
        for result in results:
            if not parts or isinstance(parts[-1], str):
                parts.append(Markup(form.separator if parts else form.first))
            if self.bracket or self.format.layout is not None:
                before = (
                    self._bracket_opener(result) if self.bracket else form.before(result, self._escaping, apart=apart)
                )
                parts += before, marked_text(result), Markup(form.closer)
            else:
                parts.append(Markup(self.format.render_result(result)))
            parts += [part for part in result.parts if isinstance(part, Image)]
        if not parts:
            return []
        composed = self._composed([*parts, Markup(form.last)])
        if self._escapes is not None and (self.bracket or self.format.layout is not None):
            self._escapes.note_results(form, sum(len(part.text) for part in composed if isinstance(part, Text)))
        return [Message("user", composed)]

    def _bracket_call(self, use: ToolUse) -> Pieces:
        ids = (("id", use.item_id), ("call_id", use.call_id))
        shown = [f"{key}={text} " for key, value in ids if value and is_word(text := self._attribute(value))]
        arguments = taught_arguments(use)
        if not is_json_object(arguments):
            arguments = compact({"arguments": arguments})  # invalid JSON is wrapped, so that the call can still be read
        written = Markup(self._escaping.json(arguments))
        name = self._attribute(plain_name(use))
        return Markup(f"[function_call {''.join(shown)}name={name} arguments="), written, Markup("]")

    def _bracket_opener(self, result: ToolResult) -> Markup:
        return Markup(BRACKET_RESULTS.opener.replace("{id}", self._attribute(result.call_id)))

    def _attribute(self, value: str) -> str:
        return bracket_attribute(value, self._escaping)
