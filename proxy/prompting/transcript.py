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
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final, Literal

from toolwire.call_policy.ids import is_gateway_id
from toolwire.formats.base import ToolFormat, earlier_calls, escaping_for
from toolwire.formats.engine.brackets import MARKERS as BRACKET_MARKERS
from toolwire.formats.engine.brackets import RESULTS as BRACKET_RESULTS
from toolwire.formats.engine.brackets import attribute as bracket_attribute
from toolwire.formats.engine.brackets import is_word
from toolwire.formats.engine.escaping import SLICE_CHARS, Escaping, Markup, Pieces
from toolwire.formats.engine.layout import plain_name
from toolwire.formats.engine.longjson import compact
from toolwire.formats.engine.rendering import is_json_object, prompt_name, taught_arguments
from toolwire.formats.engine.restoring import Escapes
from toolwire.formats.engine.results import marked_text
from toolwire.model import (
    Attempt,
    Image,
    Message,
    ModelRequest,
    OpaquePart,
    Part,
    PlainMessages,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolChoice,
    ToolResult,
    ToolUse,
    replace,
)

Placement = Literal["append", "prepend", "separate", "user"]
Flatten = Literal["sentinel", "bracket", "native"]

GO_ON: Final = "Continue."
"""The user message added to a transcript that would otherwise not end with one (R5.8a)."""

_HISTORY: Final = (ToolUse, ToolResult)

_NONE: Final = ToolChoice("none")

SYSTEM: Final = frozenset({"system", "developer"})
"""Roles that only the application uses."""

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
    escaping: Escaping | None = None,
) -> ModelRequest:
    """Returns the request for a backend without tools: history as text, `segment` in its place, tools removed.

    An empty segment is not placed. `reminder` is added to the last message if that contains text of the user (R23.7).
    `also`: further markers that the route reads. `escapes` collects the escapes made, so that they can be undone in the
    answer. `wire` is the name of the backend's protocol, whose own parts are kept. `special_tokens`: ask the server to
    include them in its answer, if the request is changed at all. `escaping`: the result of `escaping_of`, if available.
    """
    history = has_history(request.messages)
    if not segment and not history and not request.tools:
        return request
    messages: Sequence[Message] = request.messages
    if flatten != "native" and not history:
        bracket = flatten == "bracket"
        escaping = escaping or escaping_of(tool_format, bracket, also)
        messages = _spoken(request.messages, tool_format, bracket, also, escapes, escaping)
    elif flatten != "native":
        messages = flattened(messages, tool_format, bracket=flatten == "bracket", also=also, escapes=escapes)
    messages = completed(messages, request.messages, segment, placement, reminder, wire)
    return replace(
        request,
        messages=PlainMessages(messages) if type(request.messages) is PlainMessages else tuple(messages),
        tools=(),
        tool_choice=_NONE,
        parallel_tool_calls=True,
        special_tokens=special_tokens or request.special_tokens,
    )


def guarded(
    request: ModelRequest, markers: frozenset[str], escapes: Escapes, roles: Container[str] | None = None
) -> ModelRequest:
    """Returns the request with `markers` escaped in the texts of messages in these `roles` (None: all). `escapes`
    collects the escapes made."""
    escaping = turn_escaping(markers)
    if escapes.markers is None:
        escapes.markers = escaping.markers
    noting = escaping.noting(escapes)

    def safe(message: Message) -> Message:
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

    messages = tuple(map(safe, request.messages))
    return replace(request, messages=messages, guarded=True)


@lru_cache(maxsize=64)
def turn_escaping(markers: frozenset[str]) -> Escaping:
    """Returns an escaping for texts that must not begin or end a turn."""
    return Escaping(markers)


def is_silent(message: Message, wire: str | None) -> bool:
    """Returns True if a message contains nothing that can be shown as text to a model behind a backend of the protocol
    `wire` (`toolwire.upstream.servers.fit_messages.fit_parts`)."""
    for part in message.parts:
        foreign = isinstance(part, OpaquePart) and part.protocol != wire
        if not (foreign or (isinstance(part, Reasoning) and not part.text)):
            return False
    return bool(message.parts)


def last_said(messages: Sequence[Message], wire: str | None) -> Message | None:
    """Returns the last message that is not silent, or None."""
    for message in reversed(messages):
        if not is_silent(message, wire):
            return message
    return None


def has_history(messages: Iterable[Message]) -> bool:
    """Returns True if a message contains a call or a result."""
    if type(messages) is PlainMessages:
        return False
    for message in messages:
        for part in message.parts:
            if type(part) in _HISTORY:
                return True
    return False


# --- the segment ----------------------------------------------------------------------------------------------------


def user_speaks_last(messages: Sequence[Message], wire: str | None) -> bool:
    """Returns True if the last message with content is the user's and not only tool results."""
    last = last_said(messages, wire)
    return last is not None and last.role == "user" and not all(isinstance(part, ToolResult) for part in last.parts)


def reminded(messages: Sequence[Message], reminder: str, wire: str | None) -> list[Message]:
    """Returns the messages with `reminder` at the end of the last message with content."""
    out = list(messages)
    at = max(index for index, message in enumerate(out) if not is_silent(message, wire))
    out[at] = replace(out[at], parts=_joined(out[at].parts, reminder, at_end=True))
    return out


def completed(
    messages: Sequence[Message],
    client_messages: Sequence[Message],
    segment: str,
    placement: Placement,
    reminder: str,
    wire: str | None,
) -> Sequence[Message]:
    """Returns the messages of a prompt with `segment` and `reminder` in their places (if not empty), ending with a user
    message (R5.8a). `wire` is the name of the server's protocol."""
    if segment:
        messages = placed(messages, segment, placement)
    if reminder and user_speaks_last(client_messages, wire):
        messages = reminded(messages, reminder, wire)
    last = last_said(messages, wire)
    if last is None or last.role not in ("user", "tool"):
        messages = [*messages, Message("user", (Text(GO_ON),))]
    return messages


def placed(messages: Sequence[Message], segment: str, placement: Placement) -> list[Message]:
    """Returns the messages with the segment in its place (R5.1).

    `append`, `prepend`: at the end or start of the first system message, if it precedes all user messages. `separate`:
    as a system message after those at the beginning. `user`: at the start of the first user message. If there is no
    such message, a new one is added.
    """
    out = list(messages)
    found = None
    for at, message in enumerate(out):
        if message.role == "user":
            found = at if placement == "user" else None
            break
        if message.role in SYSTEM and placement in ("append", "prepend"):
            found = at
            break
    if found is None:
        new = Message("user" if placement == "user" else "system", (Text(segment),))
        out.insert(_behind_systems(out) if placement in ("separate", "user") else 0, new)
    else:
        old = out[found]
        out[found] = Message(old.role, _joined(old.parts, segment, at_end=placement == "append"), old.name, old.extra)
    return out


def _behind_systems(messages: Sequence[Message]) -> int:
    """Returns the position after the system messages at the beginning."""
    for at, message in enumerate(messages):
        if message.role not in SYSTEM:
            return at
    return len(messages)


def _joined(parts: tuple[Part, ...], segment: str, *, at_end: bool) -> tuple[Part, ...]:
    """Returns the parts with the segment merged into the neighbouring text, because many backends accept only a plain
    string."""
    edge = parts[-1 if at_end else 0] if parts else None
    if not isinstance(edge, Text):
        return (*parts, Text(segment)) if at_end else (Text(segment), *parts)
    first, second = (edge.text, segment) if at_end else (segment, edge.text)
    joined = Text(f"{first}\n\n{second}" if first and second else first or second)
    return (*parts[:-1], joined) if at_end else (joined, *parts[1:])


# --- the history ----------------------------------------------------------------------------------------------------


def _spoken(
    messages: tuple[Message, ...],
    tool_format: ToolFormat,
    bracket: bool,
    also: tuple[str, ...],
    escapes: Escapes | None,
    escaping: Escaping,
) -> Sequence[Message]:
    """Returns messages without calls and results, escaped."""
    if type(messages) is PlainMessages and escaping.leaves(messages.texts(SYSTEM)):  # the usual case
        if escapes is not None:
            escapes.markers = escaping.markers
        return messages
    writer = TranscriptWriter(tool_format, bracket, also, escapes)
    return [writer.talk(message, message.parts) for message in messages]


def escaping_of(tool_format: ToolFormat, bracket: bool, also: tuple[str, ...]) -> Escaping:
    """Returns the escaping for the texts of a conversation."""
    return escaping_for(tool_format, (*also, *BRACKET_MARKERS) if bracket else also)


def flattened(
    messages: Sequence[Message],
    tool_format: ToolFormat,
    *,
    bracket: bool = False,
    also: tuple[str, ...] = (),
    escapes: Escapes | None = None,
) -> list[Message]:
    """Returns calls and results as text: calls in their assistant message, results as user messages directly after
    it."""
    writer = TranscriptWriter(tool_format, bracket, also, escapes)
    answers, owner = _answers(messages)
    own_id = None if bracket else tool_format.own_id
    made = 0
    out: list[Message] = []
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
    return out


def _answers(messages: Sequence[Message]) -> tuple[dict[_Place, list[ToolResult]], dict[_Place, _Place]]:
    """Returns the results of each call, and the call of each result. A result belongs to the latest earlier message
    with a call of its id, because some clients restart counting in every turn. Within that message unanswered calls
    come first."""
    answers: dict[_Place, list[ToolResult]] = {}
    owner: dict[_Place, _Place] = {}
    latest: dict[str, list[_Place]] = {}
    for index, message in enumerate(messages):
        here: dict[str, list[_Place]] = {}
        for place, part in enumerate(message.parts):
            if isinstance(part, ToolUse):
                here.setdefault(part.call_id, []).append((index, place))
            elif isinstance(part, ToolResult) and part.call_id in latest:
                calls = latest[part.call_id]
                call = next((call for call in calls if call not in answers), calls[-1])
                answers.setdefault(call, []).append(part)
                owner[index, place] = call
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
            self._escaping = self._escaping.noting(escapes)

    def talk(self, message: Message, parts: tuple[Part, ...]) -> Message:
        """Returns a message without calls and results, escaped."""
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
        whole = iter(self._escaping.compose_each(several))
        return tuple([Text(next(whole)) if part is None else part for part in written])

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
        """Returns an assistant message with calls: its text, then the calls."""
        calls = self.calls(uses)
        if self.alone and rest:  # such a format reads a call only if it is the whole message
            return [self.talk(message, rest), self._with(message, calls)]
        between = (Markup("\n"),) if rest and isinstance(rest[-1], Text) and rest[-1].text else ()
        return [self._with(message, (*rest, *between, *calls))]

    def _with(self, message: Message, parts: Sequence[Part | str]) -> Message:
        name = message.name if message.name is None else self._escaping.text(message.name)
        return Message(message.role, self._composed(parts), name, message.extra)

    def calls(self, uses: Sequence[ToolUse]) -> Pieces:
        """Returns the calls of one message."""
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
            arguments = compact({"arguments": arguments})  # broken ones, so that the call can still be read
        written = Markup(self._escaping.json(arguments))
        name = self._attribute(plain_name(use))
        return Markup(f"[function_call {''.join(shown)}name={name} arguments="), written, Markup("]")

    def _bracket_opener(self, result: ToolResult) -> Markup:
        return Markup(BRACKET_RESULTS.opener.replace("{id}", self._attribute(result.call_id)))

    def _attribute(self, value: str) -> str:
        return bracket_attribute(value, self._escaping)
