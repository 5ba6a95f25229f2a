"""Writer of streamed Chat Completions answers, exactly as R7.5 to R7.10 require, because real clients break otherwise.

Rules:

1. `id`, `type` and `name` of a call are sent once, in its opening chunk; `index` counts from 0 per choice.
2. `finish_reason` is always sent, in a chunk of its own after everything else.
3. The stream ends with `[DONE]`, also after a fault; nothing is written after it.
4. The work per delta is: look up the block, escape the text, join it with bytes made when the block was opened.
5. The whole stream equals what `write_reply` writes for the same events. So text that is only whitespace is held back
   until other text follows (next to calls it is dropped), and half a character (a high surrogate) until the other half
   has come.

A stream of this protocol cannot express, besides the losses of `reply`: boundaries of text blocks (overlapping blocks
of one kind run together), `Close.status` (a cut-off call shows in `finish_reason` if there is no other, C18), and
`extra` of blocks other than calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from ...errors import GatewayError
from ...events import BlockKind, BlockStatus, Close, Delta, Event, Fault, Finish, Opaque, Open, Start
from ...model import EMPTY, Extra, Usage, fields_of
from ...repair.characters import valid_text
from ...scan._grammar import SPACE
from ..shared.wire import dump
from ..streams import KEEPALIVE, TextFrame, WriteOptions
from .extra_fields import PROTOCOL, join_fields, nest
from .reply import PASSED, finish_word, reasoning_keys, repeated_fields, reply_id, write_usage

DONE: Final = b"data: [DONE]\n\n"


class ChatWriter:
    """A `StreamWriter` of chat chunks."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._answers: dict[int, _ChoiceWriter] = {}
        self._blocks: dict[int, _BlockWriter] = {}
        self._ended = False
        self._usage_null = b',"usage":null' if options.request.include_usage else b""
        self._identity: dict[str, Any] = {}  # members of every chunk, set when the answer begins
        self._head = b""  # the same members as bytes
        self._rest: Mapping[str, Any] = EMPTY

    def feed(self, events: Iterable[Event]) -> bytes:
        """Returns the frames for these events, possibly none."""
        out: list[bytes] = []
        for event in events:
            if self._ended:
                break
            match event:
                case Delta():
                    block, text = self._blocks[event.block], event.text
                    if block.half or "\ud800" <= text[-1:] <= "\udbff":
                        text = block.joined(text)
                    if text:
                        block.put(text, event.extra, out)
                case Open():
                    self._blocks[event.block] = self._block(event, out)
                case Close():
                    block = self._blocks.pop(event.block)
                    if event.extra:
                        block.learn(event.extra, out)
                    if block.half:  # the other half never came
                        block.put("\ufffd", None, out)
                    block.close(out, event.status)
                case Finish():
                    self._finish(event, out)
                case Fault():
                    self._ended = True
                    out += [error_frame(event.error), DONE]
                case Start():
                    self._begin(event.response_id, event.extra)
                case Opaque(protocol="chat"):
                    out.append(self._foreign(event.payload))
                case _:
                    pass
        return out[0] if len(out) == 1 else b"".join(out)

    def keepalive(self) -> bytes:
        """Returns an SSE comment."""
        return KEEPALIVE

    def text_frame(self, block: int) -> TextFrame | None:
        """Returns the frame around plain text of `block`, or None; see `TextWriter`."""
        known = self._blocks.get(block)
        key = None if known is None or self._ended else known.plain_key()
        if known is None or key is None:
            return None
        answer = known.answer
        return TextFrame(answer.head + b'{"%b":"' % key, b'"}' + answer.tail)

    def wrote(self, block: int, frames: int, text: str) -> None:
        """Does nothing: chunks are not numbered; see `TextWriter`."""

    def close(self) -> None:
        """Does nothing: blocks do not refer to their writer."""

    def _begin(self, response_id: str, extra: Mapping[str, Any]) -> None:
        self._identity = {
            "id": reply_id(response_id),
            "object": "chat.completion.chunk",
            "created": self._options.created,
            "model": self._options.request.model,
        }
        if fields := extra.get(PROTOCOL):
            self._identity.update(repeated_fields(fields))
            self._rest = {key: value for key, value in fields.items() if key not in PASSED}
        self._head = self._head_with(EMPTY)

    def _head_with(self, fields: Mapping[str, Any]) -> bytes:
        """Returns the beginning of a chunk, up to its choices, with additional top-level fields."""
        return b"data: " + dump({**fields, **self._identity})[:-1] + b',"choices":['

    def _foreign(self, payload: Any) -> bytes:
        """Returns an unmodelled chunk as it was received, with the identity of this stream (R7.5, R7.7)."""
        if isinstance(payload, dict) and "choices" in payload:
            if not self._head:
                self._begin("", EMPTY)
            payload = {**payload, **self._identity}
        if isinstance(payload, dict):
            payload = {key: value for key, value in payload.items() if key != "usage"}
            if self._usage_null:
                payload["usage"] = None
        return b"data: " + dump(payload) + b"\n\n"

    def _answer(self, index: int) -> _ChoiceWriter:
        """Returns a new choice with this index."""
        if not self._head:
            self._begin("", EMPTY)
        place = b'{"index":%d,"delta":' % index
        answer = self._answers[index] = _ChoiceWriter(self._head + place, self._usage_null)
        if self._rest:  # written once, in the first chunk
            answer.first, self._rest = self._head_with(self._rest) + place, EMPTY
        return answer

    def _block(self, opened: Open, out: list[bytes]) -> _BlockWriter:
        answer = self._answers.get(opened.choice) or self._answer(opened.choice)
        match opened.kind:
            case BlockKind.TOOL_CALL:
                return _CallBlock(answer, opened, out)
            case BlockKind.REASONING:
                field = self._options.reasoning_field
                opaque = EMPTY if field == "drop" else join_fields(fields_of(opened.extra, PROTOCOL), EMPTY)
                if field == "inline":
                    return _InlineReasoningBlock(answer, self._options.reasoning_tags, opaque)
                return _ReasoningBlock(answer, reasoning_keys(field), opaque, shown=field != "drop")
            case BlockKind.REFUSAL:
                return _KeyedBlock(answer, ("refusal",))
            case BlockKind.TEXT:
                return _TextBlock(answer)

    def _finish(self, finish: Finish, out: list[bytes]) -> None:
        self._ended = True
        late = finish.extra.get(PROTOCOL)
        for index, reason in enumerate((finish.reason, *finish.others)):
            answer = self._answers.get(index) or self._answer(index)
            head = b'%b{"index":%d,"delta":' % (self._head_with(late), index) if late and not index else b""
            answer.finish(finish_word(reason, answer.called, self._options), out, finish.ending(index), head)
        if self._options.request.include_usage and (finish.usage is None or finish.usage.missing != "both"):
            usage = dump(write_usage(finish.usage or Usage()))
            out.append(b'%b],"usage":%b}\n\n' % (self._head, usage))
        out.append(DONE)


def error_frame(error: GatewayError) -> bytes:
    """Returns the in-band form of an error (R7.9)."""
    return b"data: " + dump(error.envelope()) + b"\n\n"


class _ChoiceWriter:
    """One choice: the bytes around its deltas, and what was already sent of it."""

    __slots__ = ("_usage_null", "blank", "called", "calls", "first", "head", "started", "tail")

    def __init__(self, head: bytes, usage_null: bytes) -> None:
        self.head = self.first = head
        self.tail = b',"logprobs":null,"finish_reason":null}]%b}\n\n' % usage_null
        self.started = False
        self.calls = 0
        self.called = False  # True once a complete call was sent
        self._usage_null = usage_null
        self.blank: str | None = ""  # whitespace held back (rule 5); None once other text was sent

    def send(self, delta: bytes, out: list[bytes], extra: Mapping[str, Any] | None = None) -> None:
        """Adds a chunk with this delta."""
        if not self.started:
            self.started = True
            content = b"null" if delta.startswith(b'{"tool_calls"') else b'""'
            out.append(b'%b{"role":"assistant","content":%b}%b' % (self.first, content, self.tail))
        tail = self.tail
        if extra:
            delta, tail = _with_extra(delta, tail, extra, "delta")
        out.append(self.head + delta + tail)

    def finish(self, word: str, out: list[bytes], extra: Extra = EMPTY, head: bytes = b"") -> None:
        """Adds the last chunk, with `extra` of the choice. Whitespace that was held back is sent if there are no
        calls."""
        if self.blank and not self.calls:
            self.send(b'{"content":%b}' % _escape(self.blank), out)
        if not self.started:
            self.started = True
            out.append(b'%b{"role":"assistant","content":""}%b' % (self.first, self.tail))
        delta, tail = b"{}", b',"logprobs":null,"finish_reason":"%b"}]%b}\n\n' % (word.encode(), self._usage_null)
        if extra:
            delta, tail = _with_extra(delta, tail, extra, "message")
        out.append(b"%b%b%b" % (head or self.head, delta, tail))


def _with_extra(delta: bytes, tail: bytes, extra: Extra, inside: str) -> tuple[bytes, bytes]:
    """Returns the bytes of a delta, and those behind it, with the unmodelled fields in `extra`; the delta's own fields
    are under the key `inside`."""
    if extra.get("logprobs"):
        tail = tail.replace(b'"logprobs":null', b'"logprobs":' + dump(extra["logprobs"]), 1)
    fields = fields_of(extra, PROTOCOL)
    if own := fields.get(inside):
        delta = delta[:-1] + (b"," if len(delta) > len(b"{}") else b"") + dump(own)[1:]
    if rest := {key: value for key, value in fields.items() if key != inside}:
        tail = b"," + dump(rest)[1:-1] + tail
    return delta, tail


class _BlockWriter:
    """An open block. `put` writes text, `close` writes everything still held back. `half` is half a character at the
    end of the text so far."""

    __slots__ = ("answer", "half")

    def __init__(self, answer: _ChoiceWriter) -> None:
        self.answer = answer
        self.half = ""

    def joined(self, text: str) -> str:
        """Returns the held-back half character and `text`; half a character at the end is held back in turn."""
        text = self.half + text
        self.half = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return text[:-1] if self.half else text

    def put(self, text: str, extra: Mapping[str, Any] | None, out: list[bytes]) -> None:
        """Adds the frames of a text that ends with a whole character."""
        raise NotImplementedError  # each kind of block has its own place in a delta

    def plain_key(self) -> bytes | None:
        """Returns the key under which plain text can be written without other work; None if there is other work."""
        return None

    def learn(self, extra: Extra, out: list[bytes]) -> None:
        """Stores or sends the `extra` from the end of the block."""

    def close(self, out: list[bytes], status: BlockStatus) -> None:
        """Ends the block."""


class _TextBlock(_BlockWriter):
    """A block of visible text."""

    __slots__ = ()

    def put(self, text: str, extra: Mapping[str, Any] | None, out: list[bytes]) -> None:
        answer = self.answer
        if answer.blank is not None:
            text = answer.blank + text
            if not text.strip(SPACE):
                answer.blank = text
                return
            answer.blank = None
        answer.send(b'{"content":' + _escape(text) + b"}", out, extra)

    def plain_key(self) -> bytes | None:
        return b"content" if self.answer.blank is None and not self.half else None


class _InlineReasoningBlock(_TextBlock):
    """A block of reasoning inside the visible text, between tags."""

    __slots__ = ("_opaque", "_opened", "_tags")

    def __init__(self, answer: _ChoiceWriter, tags: tuple[str, str], opaque: Mapping[str, Any]) -> None:
        super().__init__(answer)
        self._tags = tags
        self._opened = False
        self._opaque = opaque

    def learn(self, extra: Extra, out: list[bytes]) -> None:
        self._opaque = join_fields(self._opaque, fields_of(extra, PROTOCOL))

    def put(self, text: str, extra: Mapping[str, Any] | None, out: list[bytes]) -> None:
        super().put(text if self._opened else self._tags[0] + text, extra, out)
        self._opened = True

    def plain_key(self) -> bytes | None:
        return None

    def close(self, out: list[bytes], status: BlockStatus) -> None:
        if self._opened:
            super().put(self._tags[1], None, out)
        if self._opaque:
            self.answer.send(dump(self._opaque), out)


class _KeyedBlock(_BlockWriter):
    """A block of reasoning or a refusal, under keys of its own; without keys it is left out."""

    __slots__ = ("_keys",)

    def __init__(self, answer: _ChoiceWriter, keys: tuple[str, ...]) -> None:
        super().__init__(answer)
        self._keys = [dump(key) for key in keys]

    def put(self, text: str, extra: Mapping[str, Any] | None, out: list[bytes]) -> None:
        if self._keys:
            escaped = _escape(text)
            self.answer.send(b"{%b}" % b",".join(b"%b:%b" % (key, escaped) for key in self._keys), out, extra)

    def plain_key(self) -> bytes | None:
        plain = len(self._keys) == 1 and self.answer.started and not self.half
        return self._keys[0].strip(b'"') if plain else None


class _ReasoningBlock(_KeyedBlock):
    """A block of reasoning, followed by its opaque fields."""

    __slots__ = ("_opaque", "_shown")

    def __init__(self, answer: _ChoiceWriter, keys: tuple[str, ...], opaque: Mapping[str, Any], *, shown: bool) -> None:
        super().__init__(answer, keys)
        self._opaque = opaque
        self._shown = shown

    def learn(self, extra: Extra, out: list[bytes]) -> None:
        if self._shown:
            self._opaque = join_fields(self._opaque, fields_of(extra, PROTOCOL))

    def close(self, out: list[bytes], status: BlockStatus) -> None:
        if self._opaque:
            self.answer.send(dump(self._opaque), out)


class _CallBlock(_BlockWriter):
    """A block of a call: its opening chunk is sent at once, then its arguments."""

    __slots__ = ("_empty", "_index", "_prefix", "_suffix")

    def __init__(self, answer: _ChoiceWriter, opened: Open, out: list[bytes]) -> None:
        super().__init__(answer)
        index = self._index = answer.calls
        answer.calls += 1
        custom = opened.call_kind == "custom"
        kind, field = ("custom", "input") if custom else ("function", "arguments")
        call = {"index": index, "id": opened.call_id, "type": kind, kind: {"name": opened.name, field: ""}}
        if PROTOCOL in opened.extra:
            call = nest(call, kind, opened.extra)
        answer.send(b'{"tool_calls":[%b]}' % dump(call), out)
        self._prefix = b'{"tool_calls":[{"index":%d,"%b":{"%b":' % (index, kind.encode(), field.encode())
        self._suffix = b"}}]}"
        self._empty = not custom

    def learn(self, extra: Extra, out: list[bytes]) -> None:
        if fields := fields_of(extra, PROTOCOL):
            self.answer.send(b'{"tool_calls":[%b]}' % dump({**fields, "index": self._index}), out)

    def put(self, text: str, extra: Mapping[str, Any] | None, out: list[bytes]) -> None:
        if self._empty and text.strip(SPACE):
            self._empty = False
        self.answer.send(self._prefix + _escape(text) + self._suffix, out)

    def close(self, out: list[bytes], status: BlockStatus) -> None:
        if status == "truncated":
            return
        self.answer.called = True
        if self._empty:
            self.put("{}", None, out)


def _escape(text: str) -> bytes:
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        return orjson.dumps(valid_text(text))
