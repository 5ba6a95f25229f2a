"""Converts an app-server's messages about one turn to events.

Rules:

1. Only agent messages are text. Other activities of the server (commands, edits, searches) are not calls for the
   client.
2. If the model's stream was cut, the server may begin its message anew; the two versions are never joined. If no text
   was streamed yet, the first version is dropped; otherwise the answer ends with an error.
3. Tool calls are reported as the model's server sent them, in its order, when its answer is over. Then the turn must be
   stopped, because the results of the calls come with another request.
4. The token counts are those of the whole thread, which has only one request. Counts of zero mean that nothing was
   counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import BackendFault, GatewayError
from ...events import BlockKind, Call, Close, Delta, Event, Finish, Open
from ...model import FinishReason, ToolUse, Usage
from ...protocols.shared.wire import dump
from ...upstream.servers.private_data import PrivateData
from ...upstream.servers.usage import add_usage
from . import failures

_SUMMARY: Final = "item/reasoning/summaryTextDelta"
_REASONING: Final = frozenset({"item/reasoning/textDelta", _SUMMARY})


class TurnEvents:
    """The events of one turn.

    `names`: maps the server's names of the offered tools to the client's. `whole`: nothing is sent before the end, so
    that a version of the answer can still be dropped (rule 2).
    """

    def __init__(self, names: Mapping[str, str], private: PrivateData, *, whole: bool) -> None:
        self.over = False
        """No more messages are needed."""
        self.stopped = False
        """The turn has ended by itself."""
        self.has_text = False
        """Visible text was produced."""
        self.restarts = 0
        """Number of times that all earlier events were dropped; for readers of a whole answer."""
        self.failing: GatewayError | None = None
        """The error that the turn is about to fail with."""
        self._names = names
        self._private = private
        self._whole = whole
        self._blocks = 0
        self._open: tuple[str, int] | None = None
        self._said: dict[str, int] = {}
        self._form: dict[str, str] = {}
        self._usage: Usage | None = None
        self._calls: list[ToolUse] = []
        self._asked: list[ToolUse] = []
        self._end: str | None = None

    @property
    def began(self) -> bool:
        """True if any text or reasoning was produced."""
        return self._blocks > 0

    @property
    def waits_for_calls(self) -> bool:
        """True if the server asked to run a call, but did not report it as a part of the model's answer; possibly no
        more messages come."""
        return bool(self._asked) and not self._calls

    def feed(self, message: Mapping[str, Any]) -> list[Event]:
        """Returns the events of a notification or request. Raises `GatewayError`."""
        params = message["params"]
        method = message["method"]
        if method == "item/agentMessage/delta":
            return self._delta(BlockKind.TEXT, method, params)
        if method in _REASONING:
            return self._delta(BlockKind.REASONING, method, params)
        match method:
            case "item/started" | "item/completed":
                item = params.get("item")
                return self._item(item, ended=method == "item/completed") if isinstance(item, dict) else []
            case "item/reasoning/summaryPartAdded":
                return self._part(params)
            case "thread/tokenUsage/updated":
                usage = params.get("tokenUsage")
                if isinstance(usage, dict):
                    self._usage = read_usage(usage.get("total") or usage.get("last")) or self._usage
            case "error":
                return self._error(params)
            case "rawResponseItem/completed":
                self._raw(params.get("item"))
            case "rawResponse/completed" if self._calls:
                self._usage = add_usage(self._usage, read_usage(params.get("usage")))
                return self.finish_calls()
            case "item/tool/call" if params.get("tool") in self._names:
                self._asked.append(self._use(params["tool"], params.get("callId"), params.get("arguments")))
            case "turn/completed":
                return self._completed(params.get("turn"))
            case _:
                pass
        return []

    def finish_calls(self) -> list[Event]:
        """Returns the final events of an answer with calls."""
        out = self._close()
        for use in self._calls or self._asked:
            out += Call(self._blocks, use).events()
            self._blocks += 1
        self.over = True
        return [*out, Finish(FinishReason.TOOL_CALLS, self._usage)]

    # --- blocks -----------------------------------------------------------------------------------------------------

    def _delta(self, kind: BlockKind, method: str, params: Mapping[str, Any]) -> list[Event]:
        text, item = params.get("delta"), str(params.get("itemId"))
        if not isinstance(text, str) or not text or self._end is not None or self.failing is not None:
            return []
        if self._form.setdefault(item, method) != method:
            return []  # reasoning may come both in full and as a summary; the first form is used
        if self._open is None or self._open[0] != item:
            return [*self._close(), *self._begin(kind, item, text)]
        self._said[item] += len(text)
        return [Delta(self._open[1], text)]

    def _begin(self, kind: BlockKind, item: str, text: str) -> list[Event]:
        self._open = (item, self._blocks)
        self._blocks += 1
        self._said[item] = self._said.get(item, 0) + len(text)
        self.has_text = self.has_text or kind is BlockKind.TEXT
        return [Open(self._open[1], kind), Delta(self._open[1], text)]

    def _part(self, params: Mapping[str, Any]) -> list[Event]:
        """Begins a new paragraph for the next part of a reasoning summary."""
        item = params.get("itemId")
        if self._open is None or self._open[0] != item or self._form.get(item) != _SUMMARY:
            return []
        return [Delta(self._open[1], "\n\n")]

    def _close(self) -> list[Event]:
        if self._open is None:
            return []
        block = self._open[1]
        self._open = None
        return [Close(block)]

    def _item(self, item: Mapping[str, Any], *, ended: bool) -> list[Event]:
        kind, ident = item.get("type"), str(item.get("id"))
        if kind == "contextCompaction":
            raise failures.compacted()
        if not ended:
            self._forget(ident)
            return []
        if self._end is not None or self.failing is not None:
            return []
        if kind == "agentMessage":
            text, block = str(item.get("text") or ""), BlockKind.TEXT
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary")
            text = "\n\n".join(map(str, parts)) if isinstance(parts, list) and ident not in self._said else ""
            block = BlockKind.REASONING
        else:
            return []
        out: list[Event] = []
        rest = text[self._said.get(ident, 0) :]
        if rest and self._open is not None and self._open[0] == ident:
            self._said[ident] += len(rest)
            out = [Delta(self._open[1], rest)]
        elif rest:
            out = [*self._close(), *self._begin(block, ident, rest)]
        self._said.setdefault(ident, 0)
        if self._open is not None and self._open[0] == ident:
            out += self._close()
        return out

    def _forget(self, item: str) -> None:
        """Forgets an earlier item with the same id, because the item begins (anew)."""
        self._said.pop(item, None)
        self._form.pop(item, None)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _error(self, params: Mapping[str, Any]) -> list[Event]:
        error = params.get("error")
        error = error if isinstance(error, dict) else {"message": str(error)}
        if params.get("willRetry") is True:
            return self._restart(error)
        self._end = failures.finish_reason(error)
        if self._end is None:
            self.failing = failures.turn_error(error, self._private)
        return []

    def _restart(self, error: Mapping[str, Any]) -> list[Event]:
        """Drops the first version of the answer, or raises `BackendFault` if it was sent already (rule 2)."""
        if self.has_text and not self._whole:
            raise failures.broken_off(str(error.get("additionalDetails") or ""), self._private)
        out = self._close()
        self._said.clear()
        self._form.clear()
        self._calls.clear()
        self._asked.clear()
        self.has_text = False
        self.restarts += self._whole
        return out

    def _completed(self, turn: Any) -> list[Event]:
        self.over = self.stopped = True
        turn = turn if isinstance(turn, dict) else {}
        status = turn.get("status")
        if status == "failed" and self._end is None:
            error = turn.get("error")
            error = error if isinstance(error, dict) else {}
            self._end = failures.finish_reason(error)
            if self._end is None:
                raise self.failing or failures.turn_error(error, self._private)
        if self._end is not None:
            return self._cut_off(self._end)
        if self.failing is not None:
            raise self.failing
        if status == "interrupted":
            raise failures.broken_off("", self._private)
        if status != "completed":
            raise BackendFault(
                "The model server's turn ended with an unknown status.", code="upstream_invalid_response"
            )
        items = turn.get("items")
        out: list[Event] = []
        if isinstance(items, list) and not self.has_text:
            for item in items:
                out += self._item(item, ended=True) if isinstance(item, dict) else []
        return [*out, *self._close(), Finish(FinishReason.STOP, self._usage)]

    def _cut_off(self, reason: str) -> list[Event]:
        """Returns the final events of a truncated answer. A complete call is kept (C18)."""
        if self._calls:
            return self.finish_calls()
        out = [Close(event.block, "truncated") for event in self._close() if isinstance(event, Close)]
        return [*out, Finish(reason, self._usage)]

    def _raw(self, item: Any) -> None:
        if isinstance(item, dict) and item.get("type") == "function_call" and item.get("name") in self._names:
            self._calls.append(self._use(item["name"], item.get("call_id"), item.get("arguments")))

    def _use(self, name: str, call_id: Any, arguments: Any) -> ToolUse:
        text = arguments if isinstance(arguments, str) else dump(arguments).decode()
        return ToolUse(str(call_id), self._names[name], text)


def read_usage(counts: Any) -> Usage | None:
    """Returns the token counts in a message of the server; None if it has not counted."""
    if not isinstance(counts, dict):
        return None

    def tokens(name: str) -> int:
        value = counts.get(name)
        return value if isinstance(value, int) and value > 0 else 0

    usage = Usage(
        tokens("inputTokens"),
        tokens("outputTokens"),
        cached_tokens=tokens("cachedInputTokens"),
        cache_write_tokens=tokens("cacheWriteInputTokens"),
        reasoning_tokens=tokens("reasoningOutputTokens"),
    )
    return usage if usage.total_tokens else None
