"""Conversion between a whole reply and its events, in both directions (rule 3 of `toolwire.events`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from .events import (
    MAX_CHOICES,
    BlockKind,
    Call,
    Close,
    Delta,
    Event,
    Fault,
    Finish,
    Opaque,
    Open,
    Start,
    StreamGrammarError,
    extra_of,
)
from .model import (
    COMMON,
    EMPTY,
    Extra,
    FinishReason,
    ModelReply,
    OpaquePart,
    Part,
    Reasoning,
    Refusal,
    ReplyChoice,
    Text,
    ToolUse,
    lasting,
    merged,
    replace,
)
from .support.bounded_json import is_json


def _part(opened: Open, text: str, extra: Extra) -> Part | None:
    match opened.kind:
        case BlockKind.TEXT:
            return Text(text, extra) if text or extra else None
        case BlockKind.REASONING:
            return Reasoning(text, extra) if text or extra else None
        case BlockKind.REFUSAL:
            return Refusal(text, extra) if text or extra else None
        case BlockKind.TOOL_CALL:
            name, call_id = opened.name or "", opened.call_id or ""
            return ToolUse(call_id, name, text, opened.call_kind, opened.namespace, extra=extra)


class Folding:
    """Collects the events of a stream into a reply. It stores texts, not events. `reply` can be called at any time."""

    def __init__(self) -> None:
        self.start: Start | None = None
        self.finish: Finish | None = None
        self.fault: Fault | None = None
        self._opened: dict[int, Open] = {}
        self._closed: dict[int, Close] = {}
        self._texts: dict[int, list[str]] = {}
        self._order: list[int | Opaque] = []

    def feed(self, event: Event) -> None:
        """Adds the next event."""
        match event:
            case Delta():
                self._texts[event.block].append(event.text)
            case Open():
                self._opened[event.block] = event
                self._texts[event.block] = []
                self._order.append(event.block)
            case Close():
                self._closed[event.block] = event
            case Start():
                self.start = event
            case Finish():
                self.finish = event
            case Fault():
                self.fault = event
            case Opaque():
                self._order.append(event)
            case _:
                pass

    def reply(self) -> ModelReply:
        """Returns the reply so far, including open blocks, but without calls of custom tools that are not whole: half a
        text looks like a whole one. Raises `StreamGrammarError` if `Start` is missing or a choice index is too
        large."""
        start, finish = self.start, self.finish or Finish()
        if start is None:
            raise StreamGrammarError("the stream has no Start")
        reasons = [finish.reason, *finish.others]
        choices = 1 + max([edge.choice for edge in self._opened.values()], default=0)
        if choices > MAX_CHOICES:
            raise StreamGrammarError(f"a block of choice {choices - 1}; the last there may be is {MAX_CHOICES - 1}")
        if choices > len(reasons):
            reasons += [FinishReason.STOP] * (choices - len(reasons))
        parts: list[list[Part]] = [[] for _ in reasons]
        for item in self._order:
            if isinstance(item, Opaque):
                parts[0].append(OpaquePart(item.protocol, item.payload))
                continue
            edge, closed = self._opened[item], self._closed.get(item)
            if edge.call_kind == "custom" and (closed is None or closed.status == "truncated"):
                continue
            part = _part(edge, "".join(self._texts[item]), extra_of(edge, closed))
            if part is not None:
                add_part(parts[edge.choice], part)
        answers = tuple(
            [ReplyChoice(tuple(p), r, finish.ending(i)) for i, (p, r) in enumerate(zip(parts, reasons, strict=True))]
        )
        usage = start.usage if finish.usage is None else finish.usage
        extra = merged(start.extra, finish.extra)
        return ModelReply(start.response_id, start.model, start.created, answers, usage, extra)


def parts_of(events: Iterable[Event]) -> list[Part]:
    """Returns the parts that these complete blocks become. Calls keep the stream's keys in their `extra`; `finished`
    removes them."""
    blocks: dict[int, tuple[Open, list[str]]] = {}
    for event in events:
        if isinstance(event, Delta):
            blocks[event.block][1].append(event.text)
        elif isinstance(event, Open):
            blocks[event.block] = event, []
    parts: list[Part] = []
    for opened, texts in blocks.values():
        part = _part(opened, "".join(texts), opened.extra)
        if part is not None:
            add_part(parts, part)
    return parts


def finished(reply: ModelReply) -> ModelReply:
    """Returns the reply with calls without the keys that only matter in a stream, such as the text in which they were
    found."""
    for choice in reply.choices:
        for part in choice.parts:
            if type(part) is ToolUse and not COMMON.isdisjoint(part.extra):
                return replace(reply, choices=tuple(map(_finished, reply.choices)))
    return reply


def _finished(choice: ReplyChoice) -> ReplyChoice:
    parts = [replace(part, extra=lasting(part.extra)) if isinstance(part, ToolUse) else part for part in choice.parts]
    return ReplyChoice(tuple(parts), choice.reason, choice.extra)


def add_part(parts: list[Part], part: Part) -> None:
    """Appends a part of an answer. Two neighbouring texts without `extra` are joined."""
    last = parts[-1] if parts else None
    if type(part) is Text and type(last) is Text and not (part.extra or last.extra):
        parts[-1] = Text(last.text + part.text)
    else:
        parts.append(part)


def fold(events: Iterable[Event]) -> ModelReply:
    """Returns the reply that a complete stream amounts to. Raises the error of a `Fault`, and `StreamGrammarError` if
    `Start` is missing."""
    folding = Folding()
    for event in events:
        folding.feed(event)
    if folding.fault is not None:
        raise folding.fault.error
    return folding.reply()


_KINDS: Final[Mapping[type, BlockKind]] = {
    Text: BlockKind.TEXT,
    Refusal: BlockKind.REFUSAL,
    Reasoning: BlockKind.REASONING,
}


def has_incomplete_arguments(use: ToolUse) -> bool:
    """True if the arguments of a function call are not valid JSON, so the call was cut off. Always False for custom
    tools, whose arguments are free text."""
    if use.kind == "custom":
        return False
    return not is_json(use.arguments)


def unfold(reply: ModelReply) -> list[Event]:
    """Returns the events of a whole reply; `fold` gives the reply back. A call with incomplete arguments in a cut-off
    answer is closed as `truncated`, as in a stream (C18). Raises `TypeError` for a part that replies cannot have."""
    usage = reply.usage
    read = None if usage is None else replace(usage, output_tokens=0, reasoning_tokens=0, extra=EMPTY)
    out: list[Event] = [Start(reply.id, reply.model, reply.created, reply.extra, read)]
    block = 0
    for index, choice in enumerate(reply.choices):
        for part in choice.parts:
            match part:
                case Text() | Refusal() | Reasoning():
                    out.append(Open(block, _KINDS[type(part)], choice=index, extra=part.extra))
                    out += [Delta(block, part.text), Close(block)]
                case ToolUse():
                    cut = choice.reason not in FinishReason.WHOLE and has_incomplete_arguments(part)
                    out += Call(block, part, choice=index, status="truncated" if cut else "complete").events()
                case OpaquePart():
                    out.append(Opaque(part.protocol, part.payload))
                case _:
                    raise TypeError(f"{type(part).__name__} has no place in a reply")
            block += 1
    out.append(ending(reply))
    return out


def ending(reply: ModelReply) -> Finish:
    """Returns the `Finish` event of the reply's stream."""
    reasons = [choice.reason for choice in reply.choices] or [FinishReason.STOP]
    ends = tuple([choice.extra for choice in reply.choices])
    if not any(ends):
        ends = ()
    return Finish(reasons[0], reply.usage, tuple(reasons[1:]), EMPTY, ends)
