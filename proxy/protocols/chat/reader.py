"""Reader of streamed Chat Completions answers, from servers that differ wherever the specification is open.

Rules:

1. Everything is accepted: noise is left out (`noise.py`), a chunk without any known field becomes `Opaque`, a frame
   that is not a JSON object ends the stream with a `Fault`. Bytes may be cut anywhere.
2. A call opens when its arguments begin, because its name may come in pieces until then, and closes when the stream
   ends, because servers interleave parallel calls and continue after a `finish_reason`. Each answer has at most one
   open block of prose (text, reasoning, refusal). A call that never got a name is dropped; if the answer has nothing
   else, it is a fault (R29.2).
3. `call_deltas.py` decides which call a delta belongs to and which part of its arguments is new.
4. A number from the server is checked before anything is counted or sized by it (`numbers.py`).
5. Unmodelled fields are kept: those of a delta in `Delta.extra`, of a call in its block, of the end of an answer in
   `Finish.choices`, top-level fields in `Start.extra` and, if they came later or changed, in `Finish.extra`; anything
   else makes the chunk `Opaque`. Fields of a text chunk outside its delta concern its tokens (noise, timings, token
   ids) and are left out, as on the fast path.
6. The stream is complete if `[DONE]` came or every answer has its `finish_reason`; otherwise it broke off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import GatewayError
from ...events import BlockKind, BlockStatus, Close, Delta, Finish, Opaque, Open, Start
from ...model import EMPTY, CallKind, Extra, FinishReason, Usage, merged, scoped
from ...scan._grammar import SPACE
from ..shared import noise
from ..shared.call_deltas import CallDelta, CallDeltas
from ..shared.ends import cut_off_reason, read_end
from ..shared.numbers import MAX_CALLS, MAX_CHOICES, index_of, too_many, whole_number
from ..shared.sse_reader import SseReader
from ..shared.wire import empty_answer_fault, fields_in, nameless_call_fault, unfinished_call_fault
from .extra_fields import PROTOCOL, REASONING, calls_of, of_deltas, opaque_of, other_fields
from .reply import (
    AN_ANSWER,
    CHOICE,
    KNOWN,
    MESSAGE,
    arguments_text,
    choice_extra,
    finish_of,
    message_of,
    probabilities,
    prose,
    read_error,
    read_usage,
    reply_call_extra,
    rest_of,
    text_of,
)

_PLAIN = frozenset({"role", "content"})


class ChatReader(SseReader):
    """A `StreamReader` of chat chunks, and of the legacy text protocol, whose choices hold `text` in place of a delta.
    More than `choices` choices are a fault."""

    open_prose: tuple[int, BlockKind] | None = None
    """The block of choice 0, and its kind, that the next chunk with nothing but such prose continues; None if such a
    chunk would produce other events as well."""

    def __init__(self, frame_bytes: int, choices: int = MAX_CHOICES, note: noise.Note = noise.ignore_note) -> None:
        super().__init__(frame_bytes, choices, note)
        self._answers: dict[int, _ChoiceBlocks] = {}
        self._blocks = 0
        self._usage: Usage | None = None
        self._started = False
        self._top: dict[str, Any] = {}
        self._late: dict[str, Any] = {}
        self._news: Mapping[str, Any] = EMPTY  # top-level fields that are new in this chunk

    def _at_end(self) -> None:
        if self._answers and all(answer.reason for answer in self._answers.values()):
            self._at_done()
        else:
            super()._at_end()

    def _frame(self, name: str | None, chunk: dict[str, Any]) -> None:
        prose = self.open_prose
        if name is None and prose is not None and prose[1] is BlockKind.TEXT and self._is_text(chunk, prose[0]):
            return
        if name == "error" or not chunk.keys() <= KNOWN or chunk.get("object") == "error":
            error = read_error(chunk) or (read_error({"error": chunk}) if name == "error" else None)
            if error is not None:
                self._fault(error)
                return
        usage = chunk.get("usage")
        if usage is not None:
            self._usage = read_usage(usage) or self._usage
        if (kind := noise.in_chat(name, chunk)) is not None:
            self.note(noise.LEFT_OUT, kind)
            return
        if not chunk.keys() <= KNOWN:
            fields = rest_of(chunk, KNOWN)
            if not self._started:
                self._top.update(fields)
            self._news = {key: value for key, value in fields.items() if self._top.get(key) != value} or EMPTY
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        for position, choice in enumerate(choices):
            if isinstance(choice, dict):
                if choice.get("error") and (error := read_error(choice)) is not None:
                    self._fault(error)
                    return
                if not self._started:
                    self._start(chunk)
                if not self._choice(position, choice):
                    if len(choices) > 1:  # the other choices are read
                        self.out.append(Opaque(PROTOCOL, {"choices": [{"index": position, **choice}]}))
                    else:
                        self.out.append(Opaque(PROTOCOL, chunk))
                        self._news = EMPTY
        if self._news:
            self._late.update(self._news)
            self._news = EMPTY

    def _is_text(self, chunk: Mapping[str, Any], block: int) -> bool:
        """Adds the delta of a chunk that only continues the open text `block` of choice 0, which most chunks do, and
        returns True; False for all other chunks. This shortcut halves the work."""
        match chunk.get("choices"):
            case [{"index": 0, "delta": {"content": str(text)} as delta} as choice]:
                pass
            case _:
                return False
        if not text or not delta.keys() <= _PLAIN or choice.get("finish_reason") or choice.get("logprobs"):
            return False
        if chunk.get("error") or chunk.get("object") == "error" or chunk.get("usage"):
            return False
        self.out.append(Delta(block, text))
        return True

    def _start(self, chunk: Mapping[str, Any]) -> None:
        """Adds `Start`, from the first frame with a choice; earlier frames (Azure) have no id yet."""
        self._started = True
        extra: Extra = {PROTOCOL: dict(self._top)} if self._top else EMPTY
        answer_id, model = chunk.get("id"), chunk.get("model")
        answer_id, model = answer_id if isinstance(answer_id, str) else "", model if isinstance(model, str) else ""
        self.out.append(Start(answer_id, model, whole_number(chunk.get("created")), extra))

    def _choice(self, position: int, choice: Mapping[str, Any]) -> bool:
        """Adds the events of one choice of a chunk. Returns False if the choice has nothing but unknown fields. Raises
        `BackendFault` for an invalid index."""
        index = choice.get("index")
        answer = self._answers.get(index) if type(index) is int else None
        if answer is None:
            answer = self._answer(index, position)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = message_of(choice) if answer.has_begun else message_of(choice, "message")
        rest = EMPTY if delta.keys() <= MESSAGE else rest_of(delta, MESSAGE)
        opaque = EMPTY
        if rest:
            opaque = opaque_of(rest)
            rest = other_fields(rest, opaque)
        reason = finish_of(choice) if choice.get("finish_reason") else ""
        extra = probabilities(choice["logprobs"]) if choice.get("logprobs") else None
        before = len(self.out)
        if opaque:
            answer.opaque(self, opaque)
        first = {**(extra or EMPTY), PROTOCOL: {"delta": rest}} if rest and not reason else extra
        details = bool(opaque) and answer.only_details(delta)
        for kind, text in prose(delta, details=details) if delta else ():
            if text and not answer.repeats(kind, text, details=details):
                answer.prose(self, kind, text, first)
                first = extra
        if details and answer.index == 0:
            self.open_prose = None  # the next chunk may repeat the reasoning
        has_content = len(self.out) > before or bool(opaque)
        if has_content and not reason:
            self._news = EMPTY  # they concern its tokens (rule 5)
        calls = calls_of(delta) if delta.get("tool_calls") or delta.get("function_call") else ()
        for place, call in enumerate(calls):
            answer.call(self, call, None if len(calls) == 1 else place)
        if reason:
            answer.reason = read_end(reason, self.note)
            if self._usage is None and "usage" in choice:  # Moonshot
                self._usage = read_usage(choice["usage"])
            if rest or extra or not choice.keys() <= CHOICE:
                answer.ended({**choice, "logprobs": None} if has_content else choice, rest)
            answer.close_prose(self)
            return True
        if not has_content and (rest or (extra and _has_tokens(choice["logprobs"])) or rest_of(choice, CHOICE)):
            if len(self.out) == before and not calls:
                return False
            fields = {key: value for key, value in choice.items() if key not in CHOICE or key == "logprobs"}
            unmodelled = {**fields, "index": answer.index, "delta": rest, "finish_reason": None}
            self.out.append(Opaque(PROTOCOL, {"choices": [unmodelled]}))
        return True

    def _answer(self, index: Any, position: int) -> _ChoiceBlocks:
        """Returns the answer of a choice with a new or missing index. Raises `BackendFault` for an invalid one."""
        number = index_of(index, self.choices, AN_ANSWER)
        if number is None:
            number = position
            if position >= self.choices:
                raise too_many("choices", self.choices)
        answer = self._answers.get(number)
        if answer is None:
            answer = self._answers[number] = _ChoiceBlocks(number)
        return answer

    def next_block(self) -> int:
        """Returns a new block number of this stream."""
        self._blocks += 1
        return self._blocks - 1

    def _at_done(self) -> None:
        if not self._answers:
            self._fault(empty_answer_fault())
            return
        for answer in self._answers.values():
            answer.close(self)
        if not self._blocks and any(answer.lacks_name for answer in self._answers.values()):
            self._fault(nameless_call_fault())
            return
        if any(answer.is_broken for answer in self._answers.values()):
            self._fault(unfinished_call_fault())
            return
        count = max(self._answers, default=0) + 1
        reasons = [self._answers[i].reason if i in self._answers else None for i in range(count)]
        first, *others = (reason or "stop" for reason in reasons)
        ends = tuple(self._answers[i].ending if i in self._answers else EMPTY for i in range(count))
        late: Extra = {PROTOCOL: self._late} if self._late else EMPTY
        if self._usage is None and late:
            self._usage = read_usage(fields_in(self._late.get("x_groq")).get("usage"))
        self._ended = True
        self.out.append(Finish(first, self._usage, tuple(others), late, ends if any(ends) else ()))

    def _fault(self, error: GatewayError) -> None:
        self.open_prose = None
        super()._fault(error)


def _has_tokens(logprobs: Any) -> bool:
    """True if there are probabilities of any token; a chunk without text may have none."""
    return not isinstance(logprobs, dict) or any(logprobs.values())


class _ChoiceBlocks:
    """One choice: its open block of prose and its calls. It gets its reader as an argument instead of storing it: only
    the garbage collector could free such a cycle."""

    __slots__ = (
        "_detail",
        "_drafts",
        "_ends_in_prose",
        "_has_reasoned",
        "_only_details",
        "_opaque",
        "_prose",
        "ending",
        "index",
        "is_broken",
        "lacks_name",
        "reason",
    )

    def __init__(self, index: int) -> None:
        self.lacks_name = self.is_broken = False
        """`lacks_name`: a call that was not cut off never got a name. `is_broken`: the stream ended inside the only
        call, without a finish reason."""
        self.reason: str | None = None
        self.ending: Extra = EMPTY
        self.index = index
        self._prose: tuple[int, BlockKind] | None = None  # the open block of prose
        self._ends_in_prose = self._has_reasoned = False
        self._only_details: bool | None = None
        self._detail = ""  # the reasoning in `reasoning_details` of the latest delta
        self._opaque: list[Mapping[str, Any]] = []  # opaque fields of the open reasoning
        self._drafts: CallDeltas | None = None  # None until there is a call

    @property
    def has_begun(self) -> bool:
        """True if the answer has any content."""
        return self._prose is not None or self._ends_in_prose or self._drafts is not None

    def ended(self, choice: Mapping[str, Any], rest: Mapping[str, Any]) -> None:
        """Stores unmodelled fields of the last chunk."""
        self.ending = merged(self.ending, choice_extra(choice, rest))

    def prose(self, reader: ChatReader, kind: BlockKind, text: str, extra: Mapping[str, Any] | None) -> None:
        """Adds text, reasoning or refusal."""
        self._has_reasoned = self._has_reasoned or kind is BlockKind.REASONING
        reader.out.append(Delta(self._block(reader, kind), text, extra))

    def only_details(self, delta: Mapping[str, Any]) -> bool:
        """True if `reasoning_details` alone have the text of `delta`, and had that of the first reasoning."""
        has_text = any(map(delta.get, REASONING))
        self._detail = ""
        if self._only_details is None:
            self._only_details = not (self._has_reasoned or has_text)
        return self._only_details and not has_text

    def repeats(self, kind: BlockKind, text: str, *, details: bool) -> bool:
        """True if a delta repeats, as `reasoning`, the reasoning in the `details` of the delta before it."""
        if kind is not BlockKind.REASONING or not (details or self._detail):
            return False
        before, self._detail = self._detail, text if details else ""
        return text == before

    def opaque(self, reader: ChatReader, fields: Mapping[str, Any]) -> None:
        """Adds opaque fields of the reasoning."""
        self._block(reader, BlockKind.REASONING)
        self._opaque.append(fields)

    def _block(self, reader: ChatReader, kind: BlockKind) -> int:
        """Returns the open block of this kind; opens it if necessary."""
        opened = self._prose
        if opened is None or opened[1] is not kind:
            if opened is not None:
                self._close_prose(reader, opened[0], "complete")
            self._open_named(reader)
            opened = self._prose = reader.next_block(), kind
            reader.out.append(Open(opened[0], kind, choice=self.index))
        if self.index == 0:
            reader.open_prose = opened
        return opened[0]

    def _close_prose(self, reader: ChatReader, block: int, status: BlockStatus) -> None:
        reader.out.append(Close(block, status, scoped(PROTOCOL, of_deltas(self._opaque)) if self._opaque else EMPTY))
        self._prose, self._opaque = None, []
        if self.index == 0:
            reader.open_prose = None

    def call(self, reader: ChatReader, wire: Mapping[str, Any], place: int | None) -> None:
        """Adds a delta of a call, at `place` in its array, or None if it is alone."""
        custom = wire.get("custom")
        kind: CallKind = "custom" if isinstance(custom, dict) else "function"
        body = custom if isinstance(custom, dict) else wire.get("function")
        if not isinstance(body, dict):
            body = {}
        index = index_of(wire.get("index"), MAX_CALLS, "a call")
        if self._drafts is None:
            self._drafts = CallDeltas()
        text = arguments_text(body.get("input" if kind == "custom" else "arguments"))
        draft = self._drafts.of(index, place, text_of(wire.get("id")), text_of(body.get("name")), text)
        if len(self._drafts.drafts) > MAX_CALLS:
            raise too_many("calls", MAX_CALLS)
        if draft.block is None:
            draft.kind = kind
        if extra := reply_call_extra(wire, kind):
            draft.extra = merged(draft.extra, extra)
        new = draft.take(text)
        if draft.block is not None:
            if new:
                reader.out.append(Delta(draft.block, new))
        elif draft.name and not draft.is_blank:
            self._open_named(reader, draft)
        elif draft.name and self._prose is not None:  # the prose ends before the call; later text is a new block
            self._close_prose(reader, self._prose[0], "complete")

    def _open_named(self, reader: ChatReader, last: CallDelta | None = None) -> None:
        """Opens the blocks of the calls that have a name, up to `last`, in order."""
        for draft in () if self._drafts is None else self._drafts.drafts:
            if draft.block is None and draft.name.strip(SPACE):
                assert self._drafts is not None
                self._open(reader, draft, self._drafts)
            if draft is last:
                break

    def _open(self, reader: ChatReader, draft: CallDelta, drafts: CallDeltas) -> None:
        """Opens the block of a call and adds the arguments that came before its name."""
        if self._prose is not None:
            self._close_prose(reader, self._prose[0], "complete")
        draft.block = reader.next_block()
        draft.call_id = drafts.name(draft)
        reader.out.append(
            Open(
                draft.block,
                BlockKind.TOOL_CALL,
                name=draft.name,
                call_id=draft.call_id,
                choice=self.index,
                call_kind=draft.kind,
                extra=draft.extra,
            )
        )
        draft.extra = EMPTY
        if draft.arguments:
            reader.out.append(Delta(draft.block, draft.arguments))

    @property
    def _is_cut(self) -> bool:
        return self.reason is not None and self.reason not in FinishReason.WHOLE

    def close_prose(self, reader: ChatReader) -> None:
        """Closes the prose at the end of the answer."""
        if self._prose is not None:
            self._ends_in_prose = True
            self._close_prose(reader, self._prose[0], "truncated" if self._is_cut else "complete")

    def close(self, reader: ChatReader) -> None:
        """Closes all blocks at the end of the stream. Cut-off calls are `truncated`."""
        self.close_prose(reader)
        if self._drafts is None:
            return
        self._open_named(reader)
        made = [draft for draft in self._drafts.drafts if draft.block is not None]
        halves = [draft for draft in made if draft.kind == "function" and not (draft.is_blank or draft.is_whole)]
        self.is_broken = self.reason is None and bool(halves) and len(halves) == len(made)
        for draft in self._drafts.drafts:
            if draft.block is None:
                self.lacks_name = self.lacks_name or not self._is_cut
                reader.note(noise.NAMELESS, "")
                continue
            # Without a finish reason the arguments may be incomplete; empty arguments are then checked against the
            # schema.
            # Half the text of a custom tool looks like a whole one; what a limit cuts off is what comes last (C18).
            custom_cut = draft.kind == "custom" and draft is made[-1] and self._is_cut and not self._ends_in_prose
            half = custom_cut or (draft.kind == "function" and not draft.is_whole)
            truncated = half and (self._is_cut or (self.reason is None and not draft.is_blank))
            if truncated and self.reason is not None:
                self.reason = cut_off_reason(self.reason)
            if half and draft.is_blank and not truncated and self.reason is not None:
                reader.out.append(Delta(draft.block, "{}"))  # arguments always parse as JSON (R7.3)
            reader.out.append(Close(draft.block, "truncated" if truncated else "complete", draft.extra))
        self._drafts.clear()
