"""Faults that the tests have to see, as data: one change of a few characters each.

A fault stands here because somebody could make it by mistake, and because it would lose data, let somebody in, or end
an answer wrongly. When a fault's old text changes, change it here too, or choose another fault in its place:
`tests/unit/test_mutants.py` says which no longer apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `old` stands exactly once in the file at `path`, and `new` takes its place. `breaks` says what goes
    wrong for a user. `tests` are the files or folders of tests that are nearest. `reason`: why it may live; empty if it
    may not. `rebuild`: the scanner has to be compiled again."""

    name: str
    path: str
    old: str
    new: str
    breaks: str
    tests: tuple[str, ...]
    reason: str = ""
    rebuild: bool = False


CHAT: Final = ("tests/protocols/test_corners_chat_read.py",)
MESSAGES: Final = ("tests/protocols/test_corners_messages_read.py",)
RESPONSES: Final = ("tests/protocols/test_corners_responses_read.py",)
ODD: Final = ("tests/e2e/test_odd_shapes.py",)
WRITERS: Final = ("tests/protocols/test_corners_write.py",)
STAGES: Final = ("tests/unit/test_corners_stages.py",)
LEDGERS: Final = ("tests/ratelimit/test_clocks.py", "tests/ratelimit/test_ledgers.py")

FAULTS: Final = (
    # --- calls that are streamed early ------------------------------------------------------------------------------
    Fault(
        "early-any-string", "proxy/call_policy/early.py",
        """elif byte == b'"' and self._takes_any_text(self._part):""", """elif byte == b'"':""",
        "a number in quotes is sent, and the call fails where it would have been converted", ("tests/unit/test_early_arguments.py",),
    ),
    Fault(
        "early-held-calls", "middlewares/transformation.py",
        "return None if holds else", "return None if False else",
        "a long call that is none fails the answer although nothing of it was sent", ("tests/e2e/test_argument_streaming.py",),
    ),
    Fault(
        "early-own-tools", "proxy/call_policy/policy.py",
        'if tool.server or tool.buffered:', 'if tool.buffered:',
        "a call of a tool that the gateway runs is opened before it is known to be one", ("tests/unit/test_call_policy.py",),
    ),
    Fault(
        "early-cut-escape", "proxy/call_policy/early.py",
        "            self._cut = more[end:]\n", "",
        "arguments that are cut behind a backslash lose it", ("tests/unit/test_early_arguments.py",),
    ),
    Fault(
        "early-half-text", "proxy/scan/live.py",
        'if decision.drop and opened.kind != "custom":', "if decision.drop:",
        "Codex runs half a patch of an answer that was cut off", ("tests/e2e/test_argument_streaming.py",),
    ),
    Fault(
        "early-stored-half-text", "proxy/folding.py",
        'if edge.call_kind == "custom" and (closed is None or closed.status == "truncated"):', "if False:",
        "the stored answer has half a patch as a completed call", ("tests/e2e/test_argument_streaming.py",),
    ),
    Fault(
        "chat-half-text", "proxy/protocols/chat/reader.py",
        'half = custom_cut or (draft.kind == "function"', 'half = (draft.kind == "function"',
        "half a patch of a native server is a complete call", ("tests/e2e/test_cut_calls.py",),
    ),
    # --- readers ----------------------------------------------------------------------------------------------------
    Fault(
        "requests-one-piece-only", "proxy/protocols/shared/request_schema.py",
        "        for start in range(PIECE_ITEMS, len(body[name]), PIECE_ITEMS):", "        for start in ():",
        "messages behind the first 5,000 are not checked, and a mistake there is a 500", ("tests/protocols/test_request_schema.py",),
    ),
    Fault(
        "requests-other-values", "proxy/protocols/shared/request_schema.py",
        "except ValueError:\n            pass", "except ZeroDivisionError:\n            pass",
        "a program that asks with a mapping or a subclass gets a traceback", ("tests/protocols/test_request_schema.py",),
    ),
    Fault(
        "noise-comments-in-data", "proxy/protocols/shared/noise.py",
        'if text.startswith(b":"):', "if False:",
        "a comment in data ends the stream", ("tests/protocols/test_noise.py",),
    ),
    Fault(
        "noise-no-delta", "proxy/protocols/shared/noise.py",
        'any(map(_has_content, choices)) else "no_delta"', 'any(map(_has_content, choices)) else None',
        "a choice without a delta ends strict clients", ("tests/protocols/test_noise.py",),
    ),
    Fault(
        "noise-that-may-be-an-error", "proxy/protocols/shared/noise.py",
        'return name == "error" or error_in(value) is not None', "return False",
        "an error is left out, and the client waits or gets a success", ("tests/protocols/test_noise.py", "tests/unit/test_relay.py"),
    ),
    Fault(
        "relay-noise", "proxy/pipeline/paths/relay.py",
        "            self._note(LEFT_OUT, kind)\n            return b\"\"\n", "            self._note(LEFT_OUT, kind)\n",
        "what is neither answer nor error reaches clients where bytes pass", ("tests/protocols/test_noise.py",),
    ),
    Fault(
        "ends-unknown-words", "proxy/protocols/shared/ends.py",
        "    return reason if reason in FINISH_WORDS else FinishReason.LENGTH\n", "    return reason\n",
        "a cut call under a word that nobody knows is a success", ("tests/e2e/test_cut_calls.py",),
    ),
    Fault(
        "ends-errors", "proxy/protocols/shared/ends.py",
        "    if known == ERROR:\n", "    if False:\n",
        "an answer that ended with an error is a success", ("tests/e2e/test_ends.py",),
    ),
    Fault(
        "in-band-status", "proxy/protocols/shared/server_errors.py",
        "    fault.upstream_status = status\n", "",
        "a grammar that is refused in an accepted stream is not given up", ("tests/e2e/test_ends.py", "tests/protocols/test_recorded_engines.py"),
    ),
    Fault(
        "chat-logprobs-of-later-text", "proxy/protocols/chat/reader.py",
        ' or choice.get("logprobs"):', ":",
        "the probabilities of every chunk of text but the first are lost", CHAT,
    ),
    Fault(
        "chat-usage-beside-text", "proxy/protocols/chat/reader.py",
        ' or chunk.get("usage"):', ":",
        "counts that come with a chunk of text are lost", CHAT,
    ),
    Fault(
        "chat-fields-of-both-texts", "proxy/protocols/chat/reader.py",
        "                first = extra\n", "",
        "what stands beside a delta is written twice if it holds reasoning and text", CHAT,
    ),
    Fault(
        "chat-fields-of-a-call-in-pieces", "proxy/protocols/chat/reader.py",
        "draft.extra = merged(draft.extra, extra)", "draft.extra = extra",
        "of the fields of a call that come in several chunks the earlier ones are lost", CHAT,
    ),
    Fault(
        "chat-repeated-arguments", "proxy/protocols/shared/call_deltas.py",
        "                if self._cumulative:\n", "                if False:\n",
        "arguments of servers that repeat them come several times over", (*CHAT, "tests/protocols/test_chat_stream.py"),
    ),
    Fault(
        "chat-another-id-is-another-call", "proxy/protocols/shared/call_deltas.py",
        "        if another_id and (name or (index is None and place is not None)):\n", "        if another_id:\n",
        "a call whose pieces have new ids is given out without its arguments", ODD,
    ),
    Fault(
        "chat-half-calls-without-an-end", "proxy/protocols/chat/reader.py",
        " or (self.reason is None and not draft.is_blank)", "",
        "half a call is given out if no end was said", ("tests/protocols/test_chat_stream.py",),
    ),
    Fault(
        "chat-nothing-is-an-object", "proxy/protocols/chat/reader.py",
        "draft.is_blank and not truncated and self.reason is not None:", "draft.is_blank and not truncated:",
        "a call whose arguments never came is made with none", ODD,
    ),
    Fault(
        "responses-one-index-one-item", "proxy/protocols/responses/reader.py",
        "if item is None or (wire and item.is_other(wire, ident, begins=begins)):", "if item is None:",
        "of two calls under one index one is lost", ODD,
    ),
    Fault(
        "json-labelled-as-a-stream", "proxy/upstream/servers/http_source.py",
        'return begin != b"" and _STREAM_BEGINS.match(begin) is None', "return False",
        "a whole answer that is labelled as a stream is lost", ODD,
    ),
    Fault(
        "completions-chances", "proxy/protocols/chat/reply.py",
        '"logprob": chance if number else 0.0', '"logprob": 0.0',
        "probabilities of the older text protocol are all 1", (*CHAT, "tests/protocols/test_completions.py"),
    ),
    Fault(
        "messages-citations-but-the-last", "proxy/protocols/messages/reader.py",
        'block.late.setdefault("citations", []).append(delta.get("citation"))',
        'block.late["citations"] = [delta.get("citation")]',
        "of several citations of a text only the last is kept", MESSAGES,
    ),
    Fault(
        "messages-null-counts", "proxy/protocols/shared/numbers.py",
        "if count or (count is not None and key not in counts)", "if True",
        "a null at the end takes counts away that were known at the start", MESSAGES,
    ),
    Fault(
        "messages-late-fields-of-unknown-blocks", "proxy/protocols/messages/reader.py",
        "{**wire, **block.late} if block.late else wire", "wire",
        "citations of a block that is not modelled are lost", MESSAGES,
    ),
    Fault(
        "responses-text-said-twice", "proxy/protocols/responses/item_reader.py",
        " and at != self._place", "",
        "a text of which only some deltas came is not completed from its item", RESPONSES,
    ),
    Fault(
        "responses-fields-of-a-part", "proxy/protocols/responses/item_reader.py",
        "                    late = {**late, **_part_fields(part, kind)}\n", "",
        "annotations of a streamed text are lost", RESPONSES,
    ),
    Fault(
        "responses-summaries-joined", "proxy/protocols/responses/item_reader.py",
        '                self._add_text("\\n\\n")\n', '                self._add_text(" ")\n',
        "a streamed summary differs from the whole one", RESPONSES,
    ),
    Fault(
        "codex-thoughts-twice", "proxy/extras/codex_app/answer.py",
        "if self._form.setdefault(item, method) != method:", "if False:",
        "thoughts come as they are and summed up, in one block", ("tests/backends/test_codex_app.py",),
    ),
    # --- writers ----------------------------------------------------------------------------------------------------
    Fault(
        "messages-cited-text-joins-a-plain-one", "proxy/protocols/messages/writer.py",
        "if self._text is None or fields_of(extra, PROTOCOL):", "if self._text is None:",
        "a cited text is streamed into the plain one before it and loses its citations", WRITERS,
    ),
    Fault(
        "messages-signature-of-a-server", "proxy/protocols/messages/block_streams.py",
        'self.fields.get("signature", self._signing.signature)', "self._signing.signature",
        "a server's thinking cannot be given back: its signature is replaced by the gateway's", WRITERS,
    ),
    Fault(
        "messages-half-a-character", "proxy/protocols/messages/block_streams.py",
        "        if self._half:\n            text = self._half + text\n", "        if self._half:\n",
        "characters that are cut between deltas are lost", WRITERS,
    ),
    Fault(
        "chat-logprobs-of-a-delta", "proxy/protocols/chat/writer.py",
        '    if extra.get("logprobs"):\n', "    if False:\n",
        "probabilities that a server sent are not passed on", CHAT,
    ),
    Fault(
        "chat-late-fields-of-a-call", "proxy/protocols/chat/writer.py",
        "                    if event.extra:\n                        block.learn(event.extra, out)\n", "",
        "what is said of a call at its end is not written", WRITERS,
    ),
    Fault(
        "responses-noted-text-joins-another", "proxy/protocols/responses/writer.py",
        " and (_has_fields(block.late) or _has_fields(block.opened.extra)):", " and False:",
        "a text behind one with annotations becomes part of it", WRITERS,
    ),
    Fault(
        "client-tools-for-every-server", "proxy/upstream/servers/adapt.py",
        "        if has_client_tool(tool, takes, wire):", "        if wire is not None:",
        "a server that only knows functions is sent `shell`", ("tests/e2e/test_client_tools.py",),
    ),
    Fault(
        "client-tools-of-a-container", "proxy/protocols/responses/client_tools.py",
        '.startswith("container"))', '.startswith("remote"))',
        "the client is asked to run what the server has run", ("tests/protocols/test_client_tools.py",),
    ),
    Fault(
        "responses-id-of-a-thought", "proxy/protocols/responses/output.py",
        '{**fields, "id": self.item_id}}', "{**fields}}",
        "an item of reasoning ends under another id than it began", WRITERS,
    ),
    # --- between them -----------------------------------------------------------------------------------------------
    Fault(
        "folding-choice-128", "proxy/folding.py",
        "if choices > MAX_CHOICES:", "if choices >= MAX_CHOICES:",
        "a request with the most choices that are allowed fails", STAGES,
    ),
    Fault(
        "folding-said-texts-join", "proxy/folding.py",
        "if type(part) is Text and type(last) is Text and not (part.extra or last.extra):",
        "if type(part) is Text and type(last) is Text:",
        "citations of whole answers are lost", STAGES,
    ),
    Fault(
        "folding-source-of-whole-answers", "proxy/folding.py",
        "            if type(part) is ToolUse and not COMMON.isdisjoint(part.extra):\n", "            if False:\n",
        "whole answers show the text in which their calls were found", STAGES,
    ),
    Fault(
        "mapping-source-of-whole-answers", "proxy/pipeline/answers/mapping.py",
        'source = part.extra.get("source")', "source = None",
        "calls that a model wrote as text are taken for calls of a server with tools, and counted so", STAGES,
    ),
    Fault(
        "mapping-held-calls", "proxy/pipeline/answers/mapping.py",
        "                        out += held\n", "                        pass\n",
        "calls are lost when a middleware with `on_failure: skip` breaks", STAGES,
    ),
    Fault(
        "mapping-held-chars", "proxy/pipeline/answers/mapping.py",
        "                self._held_chars -= len(call.use.arguments)\n", "",
        "a long answer with many calls fails, although each is let go", STAGES,
    ),
    Fault(
        "relay-no-json", "proxy/pipeline/paths/relay.py",
        "            else:\n                self.fault = ", "            else:\n                _ = ",
        "a frame that is no JSON ends clients, and a stream that begins with one goes out with status 200", STAGES,
    ),
    Fault(
        "plain-cut-frame", "proxy/scan/_pysse.py",
        'not frame.endswith(b"}") or usual not in frame', "usual not in frame",
        "half a frame ends clients", ("tests/parse/test_sse.py",),
    ),
    Fault(
        "relay-forms-of-errors", "proxy/pipeline/paths/relay.py",
        " or error_in(value) is not None:", ":",
        "an error of another form reaches the client as a part of the answer", ("tests/unit/test_relay_judges.py",),
    ),
    Fault(
        "cancelled-mark-stays", "proxy/pipeline/conversations/stored.py",
        "await store.delete(mark.id, mark.owner)", "pass",
        "marks to cancel pile up in the store", ("tests/e2e/test_background.py",),
    ),
    Fault(
        "cancelled-without-a-worker", "proxy/pipeline/conversations/stored.py",
        'replace(now, status="cancelled") if now is not None and now.status in RUNNING else None', "None",
        "a response whose worker is gone is never over", ("tests/e2e/test_background.py",),
    ),
    Fault(
        "whole-errors", "proxy/pipeline/paths/whole.py",
        " or _is_suspicious(wire.protocol, value, body):", ":",
        "an error in a whole answer that is sent unread reaches the client as a success", ("tests/e2e/test_relayed_errors.py",),
    ),
    Fault(
        "other-form", "proxy/upstream/pool/wire_attempts.py",
        "self.converts = self._source.converts", "pass",
        "a streamed answer in place of a whole one has counts of 0", ("tests/e2e/test_relayed_errors.py",),
    ),
    Fault(
        "relay-behind-the-end", "proxy/pipeline/paths/relay.py",
        "if self.ended or self.fault is not before:\n                break", "if self.fault is not before:\n                break",
        "what a server sends behind the end of its answer reaches the client", ("tests/unit/test_relay.py", *STAGES),
    ),
    # --- the scanner and its twin -----------------------------------------------------------------------------------
    Fault(
        "sse-mark-of-bytes", "proxy/scan/_pysse.py",
        "            line = line.removeprefix(codecs.BOM_UTF8)\n", "            pass\n",
        "the first frame of a server that begins with a byte order mark is lost", ("tests/parse/test_sse.py",),
    ),
    Fault(
        "sse-name-of-the-frame-before", "proxy/scan/_pysse.py",
        '            self._data.clear()\n        self._name = b""\n', "            self._data.clear()\n",
        "a frame without a name gets that of the one before", ("tests/parse/test_sse.py",),
    ),
    Fault(
        "sse-bound", "proxy/scan/_fastsse.pxi",
        "        if self._size + line_size <= self._limit:\n", "        if line_size <= self._limit:\n",
        "an event of many lines may be as large as it likes", ("tests/parse/test_sse.py",), rebuild=True,
    ),
    Fault(
        "json-backslash-at-a-cut", "proxy/scan/parts/json.py",
        "        self.escaped = pos > end\n", "        self.escaped = False\n",
        "a quotation mark whose backslash came with the delta before ends its string", ("tests/parse/test_parts.py",),
    ),
    Fault(
        "scanner-middle-of-a-line", "proxy/scan/_pyprose.py",
        "        self._last = text[-1].encode()[-1]\n", "        self._last = _NEWLINE\n",
        "markup in the middle of a line is taken for a call", ("tests/parse/test_corners_seams.py",),
    ),
    # --- what counts as a call --------------------------------------------------------------------------------------
    Fault(
        "brackets-behind-a-value", "proxy/call_policy/markup.py",
        "_check_closers(text, opening, closer)", "pass",
        "an unquoted value loses the brackets at its end", ("tests/parse/test_damaged_law.py",),
    ),
    Fault(
        "policy-parallel", "proxy/call_policy/policy.py",
        "            self._live -= 1\n        if self._made and not self._parallel:\n", "            self._live -= 1\n        if False:\n",
        "a client that forbids parallel calls gets several", ("tests/unit/test_call_policy.py",),
    ),
    Fault(
        "policy-strict-live", "proxy/call_policy/policy.py",
        'dedupe_calls or strict or self._taught',
        'dedupe_calls or self._taught',
        "arguments of a strict tool go out before they are checked", ("tests/unit/test_call_policy.py",),
    ),
    Fault(
        "ids-of-history", "proxy/call_policy/ids.py",
        "            if not self._numbers:\n                return self._new_id()\n", "            if not self._numbers:\n                return written\n",
        "two calls of a conversation have one id", ("tests/unit/test_call_policy.py", "tests/unit/test_assembly.py", "tests/e2e/test_call_ids.py"),
    ),
    Fault(
        "ids-in-another-form", "proxy/protocols/chat/request_writer.py",
        "at_most(ID_CHARS, as_written(result.call_id))", "at_most(ID_CHARS, result.call_id)",
        "a server gets an id back that it did not write", ("tests/e2e/test_call_ids.py",),
    ),
    Fault(
        "coercion-of-several-readings", "proxy/call_policy/coercion.py",
        "if len(fitting) == 1 else None", "if fitting else None",
        "an argument with two possible meanings is given one of them", ("tests/unit/test_coercion.py",),
    ),
    Fault(
        "recovery-foreign-keys", "proxy/call_policy/recovery.py",
        "        if key not in known.names:\n            raise NoCall(name)\n        text = value",
        "        text = value",
        "a call runs with arguments that its tool does not have", ("tests/parse/test_damaged.py",),
    ),
    Fault(
        "recovery-words-behind", "proxy/call_policy/recovery.py",
        "                    if name is None or count > MAX_CALLS:\n                        raise NoCall(named)\n",
        "                    if name is None or count > MAX_CALLS:\n                        break\n",
        "an answer that explains a call makes it", ("tests/parse/test_damaged.py",),
    ),
    Fault(
        "recovery-two-values", "proxy/call_policy/tagged_text.py",
        "        text = typed_value(value, types or known.of(key))\n        if found.setdefault(key, text) != text:",
        "        text = found[key] = typed_value(value, types or known.of(key))\n        if not text:",
        "of two values for a key one is guessed", ("tests/parse/test_damaged.py",),
    ),
    Fault(
        "call-that-ended-early", "proxy/call_policy/taught.py",
        "                if missing:\n", "                if missing and tool.strict:\n",
        "a call whose required arguments never came is made", ("tests/parse/test_slips.py",),
    ),
    Fault(
        "quoted-closer-in-a-value", "proxy/call_policy/tagged_text.py",
        "if own and closers is not None and (", "if not own and closers is not None and (",
        "a value ends at a closing tag that it quotes", ("tests/parse/test_slips.py",),
    ),
    Fault(
        "quotation-in-a-list", "proxy/scan/octets.py",
        "        if byte in b\"-*+\":\n            return MARK\n", "",
        "a call that is quoted in an item of a list is run", ("tests/parse/test_quoted.py",),
    ),
    Fault(
        "answer-behind-a-thought", "proxy/scan/first_key.py",
        "return False if after in _THOUGHTS and self._key not in self._firsts else None", "return None",
        "a JSON answer that begins with a thought is shown at its end only", ("tests/parse/test_quoted.py",),
    ),
    Fault(
        "document-behind-a-fence", "proxy/call_policy/call_text.py",
        "if self.text.endswith(FENCE, 0, at) and", "if not self.text and",
        "a call that a document shows in a fence is run", ("tests/parse/test_damaged.py",),
    ),
    Fault(
        "quoted-call-in-a-string", "proxy/scan/surroundings.py",
        "IS_TEXT if byte == _QUOTE else", "IS_CALL if byte == _QUOTE else",
        "a call that is quoted in a string is run", ("tests/parse/test_quoted.py",),
    ),
    Fault(
        "quoted-call-in-a-value", "proxy/scan/parts/block.py",
        "return self._quotes > 0", "return False",
        "a call that a value quotes ends the value, and is run", ("tests/parse/test_forms.py",),
    ),
    Fault(
        "empty-call-in-a-sentence", "proxy/scan/surroundings.py",
        "return IS_CALL if byte in _NO_WORD else IS_TEXT", "return IS_CALL",
        "a call without arguments in the middle of a sentence is run", ("tests/parse/test_forms.py",),
    ),
    Fault(
        "quoted-call-before-words", "proxy/scan/surroundings.py",
        "return IS_TEXT if len(self._word) == self.size else IS_CALL", "return IS_CALL",
        "a call that is quoted in inline code at the end of an answer is run", ("tests/parse/test_quoted.py",),
    ),
    Fault(
        "fenced-call-at-the-end", "proxy/scan/surroundings.py",
        "whole = closed or (", "whole = (",
        "a call in a fence of its own is printed", ("tests/parse/test_quoted.py",),
    ),
    Fault(
        "json-that-names-no-tool-waits", "proxy/scan/first_key.py",
        "return None if self._key not in self._names else self._may_call(", "return None if self._key else self._may_call(",
        "a JSON answer with a name is shown at its end only", ("tests/parse/test_quoted.py",),
    ),
    Fault(
        "repair-python-words", "proxy/repair/relaxed_json.py",
        "if python and (not self._single or not self._words.isdisjoint(_JSON_WORDS)):",
        "if python and not self._single:",
        "a text that mixes `True` and `true` is repaired, although it has no single meaning", ("tests/unit/test_repair.py",),
    ),
    Fault(
        "repair-fence-of-a-part", "proxy/repair/relaxed_json.py",
        'or not text.endswith("```"):', "or False:",
        "three characters are cut from a text behind an opening fence", ("tests/unit/test_repair.py",),
    ),
    Fault(
        "reasoning-is-replaced", "middlewares/reask.py",
        "(isinstance(event, Open) and event.kind is BlockKind.TEXT) for event", "isinstance(event, Open) for event",
        "reasoning of demanded calls does not stream", ("tests/chain/test_reask.py",),
    ),
    Fault(
        "errors-are-sampled", "proxy/observability/telemetry.py",
        "if record.code is not None or record.status >= 400 or record.failures or", "if",
        "lines of failed requests are dropped", ("tests/unit/test_access_line.py",),
    ),
    Fault(
        "reask-counts", "middlewares/reask.py",
        "        spent = add_usage(spent, trial.usage)\n", "        spent = trial.usage\n",
        "tokens of answers that were thrown away are not counted", ("tests/chain/test_reask.py", "tests/e2e/test_reask.py"),
    ),
    Fault(
        "near-without-a-name", "proxy/call_policy/near.py",
        "        return NearMiss(why, tools, body, \"anywhere\" if whole else \"first\") if tools else None\n",
        "        return NearMiss(why, tools, body)\n",
        "answers that explain a format are thrown away", ("tests/unit/test_near.py", "tests/parse/test_explaining.py"),
    ),
    Fault(
        "near-explained", "proxy/call_policy/near.py",
        "    return not (before and behind)\n", "    return True\n",
        "an attempt in the middle of an explanation is asked for again", ("tests/unit/test_near.py",),
    ),
    Fault(
        "retry-is-free", "middlewares/injection.py",
        "    return request if choice is None else replace(request, tool_choice=choice)\n", "    return request\n",
        "nobody enforces the tool that was tried", ("tests/e2e/test_demanded_again.py",),
    ),
    Fault(
        "repeat-is-sent", "proxy/pipeline/transforms/repeats.py",
        "                if call.key in made:\n", "                if False:\n",
        "a client runs the same call again and again", ("tests/unit/test_repeats.py",),
    ),
    # --- model servers ----------------------------------------------------------------------------------------------
    Fault(
        "attempts-after-the-beginning", "proxy/upstream/pool/attempts.py",
        "        if self._began:\n            self._blame(fault)\n            raise fault\n", "",
        "a client gets the beginning of one answer and the whole of another", ("tests/unit/test_endpoints.py", "tests/e2e/test_retries.py"),
    ),
    Fault(
        "attempts-rest", "proxy/upstream/pool/attempts.py",
        "            member.endpoint.pause(retry_after_s)\n", "            pass\n",
        "a server that asks for a pause is asked on", ("tests/unit/test_endpoints.py", "tests/e2e/test_retries.py"),
    ),
    Fault(
        "breaker-probes", "proxy/upstream/pool/breaker.py",
        '(state == "half_open" and not self._probing)', 'state == "half_open"',
        "a server that just came back gets all requests at once", ("tests/unit/test_breaker.py",),
    ),
    Fault(
        "keep-alive-answer-too-many", "proxy/upstream/client/wire_connection.py",
        "        if self.answer is None or self.answer.complete:\n            raise ValueError(\"an answer too many\")\n",
        "",
        "a second answer on a connection becomes part of the first", ("tests/backends/test_wire_answers.py", "tests/backends/test_wire_client.py"),
    ),
    Fault(
        "keep-alive-when-lost", "proxy/upstream/client/wire_connection.py",
        "            if exc is None and answer.until_close:\n", "            if answer.until_close:\n",
        "an answer whose connection was reset counts as whole", ("tests/backends/test_wire_answers.py",),
    ),
    Fault(
        "retry-after-rounding", "proxy/upstream/servers/retry_after.py",
        'min(int(whole) + bool(fraction.strip("0")), LONGEST_S * 1000)', "min(int(whole), LONGEST_S * 1000)",
        "a server is asked again before the time that it named", ("tests/backends/test_retry_after.py",),
    ),
    Fault(
        "hops-own-name", "proxy/upstream/servers/hops.py",
        "if own in names or len(names) > MOST:", "if len(names) > MOST:",
        "a gateway that leads to itself asks itself sixteen times", ("tests/unit/test_hops.py",),
    ),
    # --- who may do what --------------------------------------------------------------------------------------------
    Fault(
        "auth-two-keys", "proxy/pipeline/sending/delivery.py",
        "if len(authorization) > 1 or len(api_key) > 1:", "if False:",
        "a gateway in between and this one may read different keys of one request", ("tests/e2e/test_first_bytes.py",),
    ),
    Fault(
        "auth-routes-of-a-key", "proxy/pipeline/sending/delivery.py",
        "            key.require(route.config.model, model)\n", "",
        "a key may use models that it is not for", ("tests/e2e/test_rate_limits.py",),
    ),
    Fault(
        "redaction-own-keys", "proxy/observability/redaction.py",
        "for word in (*self._words, *keys):", "for word in self._words:",
        "a capture holds the secrets of its request", ("tests/unit/test_redaction.py",),
    ),
    Fault(
        "leaks-of-whole-answers", "proxy/upstream/servers/leak_detection.py",
        "    if private.secrets and private.occurs_in(body):\n", "    if False:\n",
        "a server's key reaches a client in a whole answer", ("tests/e2e/test_upstream_secrets.py", "tests/backends/test_private.py"),
    ),
    Fault(
        "terminal-controls", "proxy/observability/terminal.py",
        "    text = visible(text if len(text) <= NAME_CHARS", "    text = str(text if len(text) <= NAME_CHARS",
        "the name of a tool moves the cursor of who reads the log", ("tests/unit/test_terminal_log.py",),
    ),
    Fault(
        "replay-messages-ids", "proxy/extras/replay/reproduction.py",
        "[a-z]{2,5}_)", "[a-z]{2,4}_)",
        "the replay of every Messages answer with a call differs", ("tests/e2e/test_replayed_captures.py",),
    ),
    Fault(
        "inspector-refused-space", "proxy/extras/inspector/text_spans.py",
        "if one.end <= settled:", "if one.end <= upto:",
        "a refused block that ends with whitespace before a tag is shown as plain text", ("tests/inspector/test_laws.py",),
    ),
    # --- limits, stores, ends ---------------------------------------------------------------------------------------
    Fault(
        "ratelimit-clock-runs-back", "proxy/ratelimit/base.py",
        "max(0.0, elapsed_s) * self.most", "elapsed_s * self.most",
        "a clock that is set back closes a limit for as long", LEDGERS,
    ),
    Fault(
        "ratelimit-large-requests", "proxy/ratelimit/base.py",
        "used - b.cost(booked) if", "used - booked if",
        "a request that is larger than its limit opens it for others when it ends", LEDGERS,
    ),
    Fault(
        "ratelimit-all-or-none", "proxy/ratelimit/base.py",
        "return all(not wait_s(bound, units, tokens)", "return any(not wait_s(bound, units, tokens)",
        "only one of several limits counts", LEDGERS,
    ),
    Fault(
        "limits-depth", "proxy/support/bounded_json.py",
        "    if openers > bounds.depth and is_deep(value, bounds.depth):\n", "    if False:\n",
        "a body that is nested too deep is taken", ("tests/unit/test_bodies.py",),
    ),
    Fault(
        "store-owner", "proxy/store/memory.py",
        "        has = self._owners.get(owner)\n        stored = None if has is None else has.turns.get(key_of(turn_id, owner))",
        "        has = next((each for each in self._owners.values() if key_of(turn_id, owner) in each.turns), None)\n        stored = None if has is None else has.turns[key_of(turn_id, owner)]",
        "a turn is looked for among those of all owners", ("tests/store/test_conformance.py",),
        reason="the key of a turn holds its owner, so no other owner's turn is found either way: a second door behind the first",
    ),
    Fault(
        "store-expired", "proxy/store/memory.py",
        "return stored if stored is not None and stored.expires > self._now() else None", "return stored",
        "a conversation lives on after its time", ("tests/store/test_conformance.py",),
    ),
    Fault(
        "store-change-on-disk", "proxy/store/sqlite.py",
        '            db.execute("BEGIN IMMEDIATE")\n            turn = work(',
        '            db.execute("BEGIN")\n            turn = work(',
        "two workers that add to one conversation at once: one of them fails", ("tests/store/test_conformance.py",),
    ),
    Fault(
        "background-late-end", "proxy/pipeline/conversations/background_run.py",
        "lambda now: turn if is_running(now) else None", "lambda now: turn",
        "a response that was said to have failed is complete later", ("tests/e2e/test_background.py",),
    ),
    Fault(
        "store-expired-on-disk", "proxy/store/sqlite.py",
        "WHERE key = ? AND lives.expires > ?\",\n", "WHERE key = ? AND 0 < ?\",\n",
        "the same, of stores on disk", ("tests/store/test_conformance.py",),
    ),
    Fault(
        "delivery-end-in-an-answer", "proxy/pipeline/sending/delivery.py",
        "if reason is None or request.writer.output_size:", "if reason is None:",
        "the error of a stop is written into the middle of an answer", ("tests/unit/test_delivery.py", "tests/e2e/test_stopping.py"),
    ),
    Fault(
        "keep-alive-of-a-silent-stream", "proxy/ingress/liveness.py",
        "            self._beat = now\n            self._on_silence()\n", "            self._beat = now\n",
        "clients give up on a model that thinks for long", ("tests/e2e/test_stopping.py", "tests/e2e/test_faults.py"),
    ),
    Fault(
        "drain-tells-what-runs", "proxy/ingress/liveness.py",
        "        for monitor in running:\n            monitor.stop(reason)\n", "",
        "streams that still run at a stop break off without a word", ("tests/e2e/test_stopping.py", "tests/unit/test_stopping.py", "tests/unit/test_serving.py"),
    ),
    Fault(
        "bodies-read-out-of-turn", "proxy/server/clients.py",
        "                self._awaits_turn = True\n                self._pause_transport_reading()\n", "                self._awaits_turn = True\n",
        "hundreds of bodies that arrive together hold up everybody", ("tests/e2e/test_reads_in_turns.py",),
    ),
    # --- the model's own chat template -------------------------------------------------------------------------------
    Fault(
        "template-server-reads", "middlewares/injection.py",
        "ToolChoice(route.pool.capabilities.template_choice)", 'ToolChoice("auto")',
        "the server reads the answer, and llama.cpp refuses the constraint", ("tests/e2e/test_template_mode.py",),
    ),
    Fault(
        "template-shows-every-tool", "proxy/prompting/beside_template.py",
        "    return request.callable_tools\n\n\ndef templated", "    return request.tools\n\n\ndef templated",
        "a tool that may not be called stands in the prompt", ("tests/e2e/test_template_mode.py",),
    ),
    Fault(
        "template-data-is-markup", "proxy/prompting/beside_template.py",
        "            parts = self._composed(part.parts)\n", "            parts = part.parts\n",
        "a result may hold a call", ("tests/e2e/test_template_mode.py",),
    ),
    Fault(
        "template-probe-by-text-alone", "proxy/upstream/pool/template_probing.py",
        "    if tokens < LEAST_TOKENS:\n", "    if tokens < 0:\n",
        "a template that leaves tools out is taken to teach them", ("tests/e2e/test_template_probe.py",),
    ),
    Fault(
        "template-server-that-reads", "proxy/upstream/pool/template_probing.py",
        '        return ProbeResult("prompt", "read")\n', '        return ProbeResult("template", "called")\n',
        "a server that reads calls is taken to leave them", ("tests/e2e/test_template_probe.py",),
    ),
    Fault(
        "template-probe-of-each-name", "proxy/upstream/pool/template_probing.py",
        "        model = _served_name(endpoint, model)\n        key", "        key",
        "one model is probed under every name that clients give it", ("tests/e2e/test_template_probe.py",),
    ),
    Fault(
        "template-agreement", "middlewares/tool_mode.py",
        'return all(verdict is not None and verdict.mode == "template" for verdict in verdicts)',
        'return any(verdict is not None and verdict.mode == "template" for verdict in verdicts)',
        "one server of several that cannot do it gets the tools", ("tests/e2e/test_template_probe.py",),
    ),
    # --- prompts ----------------------------------------------------------------------------------------------------
    Fault(
        "repeated-result-and-more", "proxy/formats/engine/results.py",
        "if texts and last.startswith(rest) else None", "if texts else None",
        "words behind a result block that a model quotes are lost", ("tests/unit/test_unwrapping.py",),
    ),
    Fault(
        "repeated-result-unclosed-mention", "proxy/formats/engine/results.py",
        "if not text.strip() or text[0] in _BEHIND_MENTION:", "if not text.strip():",
        "a sentence about the mark of results loses the mark", ("tests/unit/test_unwrapping.py",),
    ),
    Fault(
        "repeated-result-cut-closer", "proxy/formats/engine/results.py",
        "                text = self._without_cut_closer(text)\n", "",
        "the beginning of a closing mark is shown behind a repeated result", ("tests/unit/test_unwrapping.py",),
    ),
    Fault(
        "repeated-result-without-end", "proxy/pipeline/transforms/block_texts.py",
        "may_repeat = self._size <= self._limit and self._may_repeat(text)", "may_repeat = self._may_repeat(text)",
        "an answer that begins like a result block is held back to its end", ("tests/unit/test_unwrapping.py",),
    ),
    Fault(
        "results-without-their-calls", "proxy/prompting/transcript.py",
        "apart=all(len(found) == 1 for found in of_call)", "apart=True",
        "a model cannot tell which of its calls a result answers", ("tests/formats/test_transcript.py",),
    ),
    Fault(
        "list-of-tools-in-other-markers", "proxy/prompting/prompt.py",
        "listing(shown, escaping_for(tool_format, also))", "listing(shown, escaping_for(tool_format))",
        "a description can hold the call of another family, which is recognised where a model repeats it", ("tests/formats/test_listing.py",),
    ),
    # --- known conversations ----------------------------------------------------------------------------------------
    Fault(
        "known-items-that-differ", "proxy/known/past.py",
        "if len(latest.items) == same_items(latest.items, whole):", "if same_items(latest.items, whole):",
        "a stage goes on from messages that the client has changed", ("tests/unit/test_past.py",),
    ),
    Fault(
        "known-late-results", "proxy/prompting/transcript.py",
        "elif part.call_id in before:", "elif not part.call_id:",
        "a late result is written as if nobody had called", ("tests/e2e/test_known_conversations.py",),
    ),
    Fault(
        "known-trailing-comma", "proxy/ingress/known_conversations.py",
        'or following.startswith(b"]")', "",
        "a body that is no JSON is taken for one", ("tests/unit/test_known_conversations.py",),
    ),
    Fault(
        "known-values-uncounted", "proxy/ingress/known_conversations.py",
        "openers, commas = self.conversation.marks[self.known - 1]", "openers, commas = 0, 0",
        "a conversation grows beyond `limits.json_values`", ("tests/unit/test_known_conversations.py",),
    ),
    Fault(
        "known-tools-are-new", "proxy/ingress/bodies.py",
        "items, value, lookup, len(parts.rest)", "items, value, lookup, len(body if items is None else items.rest)",
        "each turn with large tools goes through seven threads", ("tests/unit/test_toolset.py",),
    ),
    Fault(
        "notes-push-their-list-out", "proxy/formats/engine/toolset.py",
        "most=listed.most - listed.weight", "most=listed.most",
        "hundreds of tools are read and checked again with every turn", ("tests/unit/test_toolset.py",),
    ),
    Fault(
        "deleted-turns-are-known", "proxy/pipeline/conversations/known_turns.py",
        "< len(known.turns)", "< 0",
        "a conversation goes on behind a turn that the client has deleted", ("tests/unit/test_known_turns.py",),
    ),
    Fault(
        "known-turns-cost-no-budget", "proxy/pipeline/conversations/known_turns.py",
        "budget.take_values(known.values)", "pass",
        "a conversation grows beyond the limits of a body", ("tests/unit/test_known_turns.py",),
    ),
    Fault(
        "running-turns-are-known", "proxy/pipeline/conversations/known_turns.py",
        "if turns[-1].status in ANSWERED:", "if True:",
        "a response that was running once can never be continued", ("tests/unit/test_known_turns.py",),
    ),
    Fault(
        "read-messages-are-new", "proxy/pipeline/conversations/known_turns.py",
        "if last.input == known.own else last", "if False else last",
        "folds begin again before the previous request", ("tests/unit/test_known_turns.py",),
    ),
    Fault(
        "copies-are-attempts", "middlewares/reask.py",
        "if not escapes or not miss.text:", "if True:",
        "a model that copies a text as it was asked to is asked again", ("tests/chain/test_near_misses.py",),
    ),
    Fault(
        "known-signs-of-the-rest", "proxy/ingress/known_conversations.py",
        "found | _signs(cut.rest))", "_signs(cut.rest))",
        "sealed reasoning in a known message is sent to a server as it is", ("tests/unit/test_known_conversations.py",),
    ),
    Fault(
        "texts-twice", "proxy/protocols/shared/wire.py",
        "dump_in_pieces(with_own_texts(item))", "dump_in_pieces(item)",
        "texts that are not ASCII take twice their memory while a stream is open", ("tests/e2e/test_what_streams_keep.py",),
    ),
    Fault(
        "known-reasoning-anew", "proxy/protocols/shared/opaque_reasoning.py",
        'fold_items(past, ("opened", key), messages', 'fold_items(None, ("opened", key), messages',
        "a turn with reasoning that was sent back costs all of its conversation", ("tests/unit/test_seals.py",),
    ),
    Fault(
        "store-twice", "proxy/store/sqlite.py",
        "for known in (beginning.written.place, before):", "for known in (before,):",
        "the large input of a stored response is written twice", ("tests/store/test_sqlite.py",),
    ),
    Fault(
        "store-text-of-another", "proxy/store/sqlite.py",
        '"SELECT 1 FROM shared WHERE id = ? AND owner = ? AND length = ?", (place.id, owner, place.length)',
        '"SELECT 1 FROM shared WHERE id = ?", (place.id,)',
        "a turn begins with the text of another client's turn", ("tests/store/test_sqlite.py",),
    ),
    Fault(
        "store-text-not-counted", "proxy/store/sqlite.py",
        '        db.execute("UPDATE shared SET uses = uses + 1 WHERE id = ?", (earlier,))\n', "",
        "the text of a conversation goes with its first turn", ("tests/store/test_sqlite.py",),
    ),
    Fault(
        "known-of-another", "proxy/ingress/known_conversations.py",
        "        lookup.owner,\n", "",
        "a key's conversation is known to another one", ("tests/unit/test_known_conversations.py",),
    ),
    Fault(
        "known-results-apart", "proxy/protocols/messages/request_writer.py",
        "            if results is None:\n                return None\n", "            if results is None:\n                results = []\n",
        "a result that comes one request later is lost for a Messages server", ("tests/protocols/test_messages_request.py",),
    ),
    Fault(
        "known-in-one-list", "proxy/known/past.py",
        "    own = next((each for each in lists if _is_same_list(each.places[0].items, whole)), _UNKNOWN)\n",
        "    own = lists[0] if lists else _UNKNOWN\n",
        "messages as they came and as they are sent push each other out", ("tests/unit/test_past.py",),
    ),
    Fault(
        "known-kept-by-streams", "proxy/model.py",
        "            self.past = ref(self.past)\n", "            pass\n",
        "an open stream keeps what stages made of its conversation", ("tests/e2e/test_what_streams_keep.py",),
    ),
    # --- websockets -------------------------------------------------------------------------------------------------
    Fault(
        "websocket-failed-turn-remembered", "proxy/pipeline/websocket/sockets.py",
        "if not writer.succeeded and create.previous is not None", "if create.previous is None",
        "a turn that failed can be continued as if nothing had happened", ("tests/e2e/test_websocket.py",),
    ),
    Fault(
        "websocket-second-end", "proxy/pipeline/websocket/socket_exchange.py",
        'if kind == "error":', 'if kind == "never":',
        "a failed response has two ends, and the second is taken for the next response", ("tests/e2e/test_websocket_faults.py",),
    ),
    Fault(
        "websocket-any-page", "proxy/pipeline/websocket/sockets.py",
        "if origin is not None and not self._origins & ", "if origin is None and not self._origins & ",
        "any web page uses a gateway without keys", ("tests/e2e/test_websocket_faults.py",),
    ),
    Fault(
        "websocket-never-ends-on-reload", "proxy/ingress/liveness.py",
        "self.replaced = True\n        self._leave()", "self.replaced = True",
        "a connection is served by an old configuration for an hour, with keys that are gone", ("tests/e2e/test_websocket_faults.py",),
    ),
    Fault(
        "websocket-bytes-not-counted", "proxy/server/clients.py",
        "if self.frames is not None and not self.frames(len(data))", "if False",
        "clients that send halves of messages take any amount of memory", ("tests/e2e/test_websocket_faults.py",),
    ),
    Fault(
        "tools-of-earlier-turns-denied", "middlewares/conversation.py",
        "exchange.route.permission.permitted(model_request.tools, servers)", "model_request.tools",
        "a tool that is denied is on offer in the turn that continues", ("tests/e2e/test_websocket.py",),
    ),
    # --- clients of today -------------------------------------------------------------------------------------------
    Fault(
        "overflow-words", "proxy/protocols/messages/errors.py",
        'if error.code == "context_length_exceeded":', 'if error.code == "never":',
        "Claude Code does not know that it has to compact", ("tests/e2e/test_claude_codes_expectations.py",),
    ),
    Fault(
        "failed-results", "proxy/upstream/servers/fit_messages.py",
        "not (wire is not None and wire.marks_failed_results)", "False",
        "a model takes a failed result for a good one", ("tests/e2e/test_claude_codes_expectations.py",),
    ),
    Fault(
        "tools-of-stored-turns", "middlewares/conversation.py",
        "exchange.request = replace(model_request, messages", "exchange.request = replace(exchange.request, messages",
        "tools of earlier turns are gone", ("tests/e2e/test_earlier_turns.py",),
    ),
    Fault(
        "lost-namespaces", "proxy/protocols/responses/request.py",
        "if times[name] == 1 and name not in plain", "",
        "a call becomes that of another tool", ("tests/protocols/test_tools_in_input.py",),
    ),
    Fault(
        "renamed-in-arguments", "proxy/pipeline/answers/renaming.py",
        "mark == _MODEL and depth == wanted and", "mark == _MODEL and depth >= wanted and",
        "an argument is changed in bytes that pass", ("tests/e2e/test_renamed_models.py",),
    ),
    Fault(
        "sealed-for-every-key", "proxy/pipeline/exchange/route_seals.py",
        'contexts = tuple((owner, self.route, server)', 'contexts = tuple(("", self.route, server)',
        "reasoning of one key does not come back, or that of another does", ("tests/e2e/test_reasoning_returns.py",),
    ),
    Fault(
        "seals-not-checked", "proxy/support/seals.py",
        "if hmac.compare_digest(self._signature(packed, context), signature):", "if packed:",
        "anybody can write reasoning", ("tests/e2e/test_reasoning_returns.py",),
    ),
    Fault(
        "signatures-for-every-server", "proxy/protocols/shared/opaque_reasoning.py",
        "return extra.get(SERVER, server) != server or bool(sealed_in(extra))", "return bool(sealed_in(extra))",
        "a server gets what another one signed, and refuses it", ("tests/e2e/test_reasoning_returns.py",),
    ),
    Fault(
        "calls-lose-signatures", "proxy/protocols/shared/opaque_reasoning.py",
        "extra = merged(extra, of_call)", "extra = merged(extra, EMPTY)",
        "Gemini refuses a call without its signature", ("tests/e2e/test_reasoning_returns.py",),
    ),
    Fault(
        "unpacked-without-bound", "proxy/support/seals.py",
        "unpacking.decompress(packed, PAYLOAD_BYTES)", "unpacking.decompress(packed)",
        "a value of some KB takes GB of memory", ("tests/unit/test_seals.py",),
    ),
    Fault(
        "one-key-teaches-all", "proxy/upstream/pool/lessons.py",
        "OPINIONS: Final = 2", "OPINIONS: Final = 1",
        "one key's strange request changes what others' are sent without", ("tests/e2e/test_lessons.py",),
    ),
    Fault(
        "nothing-is-learned", "proxy/upstream/pool/concession_retries.py",
        "        for kind, value in self._taught.pop(member, ()):",
        "        for kind, value in ():",
        "a server is asked in vain again and again", ("tests/e2e/test_lessons.py",),
    ),
    Fault(
        "counts-of-nothing", "proxy/protocols/shared/numbers.py",
        "if count or (count is not None and key not in counts)", "if count is not None",
        "a count of 0 takes the place of one", ("tests/unit/test_counted_frames.py",),
    ),
    Fault(
        "stops-nobody-names", "middlewares/transformation.py",
        "unreported = exchange.protocol.reports_stop_sequence and not names", "unreported = exchange.protocol.reports_stop_sequence",
        "a server that names the sequence is not sent it", ("tests/e2e/test_recorded_engines.py",),
    ),
    Fault(
        "tags-off-by-default", "proxy/upstream/servers/presets.py",
        'PROVEN: Final = FREE_GRAMMARS | TAG_CONSTRAINTS | {"guided", "ebnf"}', "PROVEN: Final = FREE_GRAMMARS",
        "vLLM and SGLang are not held to schemas", ("tests/formats/test_injection.py",),
    ),
    Fault(
        "another-model-is-a-bad-request", "proxy/upstream/servers/upstream_errors.py",
        "if lacks_model(status, own_words(text)) or", "if (status == 404 and lacks_model(status, text)) or",
        "a client takes a wrong name for a wrong request", ("tests/backends/test_upstream_errors.py",),
    ),
    Fault(
        "streamed-calls-are-not-counted", "proxy/scan/spans.py",
        "calls = self._live.given + max(calls, 1)", "calls = max(calls, 1)",
        "who observes a scanner counts fewer calls than the client got", ("tests/parse/test_spans.py",),
    ),
    Fault(
        "text-before-a-call-is-in-it", "proxy/scan/spans.py",
        "start += len(raw.decode()[: decision.before].encode())", "start += decision.before",
        "a span begins inside of the text before its call", ("tests/parse/test_spans.py",),
    ),
    Fault(
        "the-last-reason-holds", "proxy/extras/capture/verdict.py",
        "            if decision.kind == \"refused\":\n                return\n", "",
        "the inspector names the reason of the form that the model did not mean", ("tests/inspector/test_why.py",),
    ),
    Fault(
        "refused-requests-fill-the-list", "proxy/extras/inspector/ring.py",
        "if len(self._refused) > MOST_REFUSED:", "if len(self._refused) > 100 * MOST_REFUSED:",
        "anybody can push the exchanges out of the inspector", ("tests/inspector/test_ring.py",),
    ),
    Fault(
        "shared-text-ends-the-element", "proxy/extras/inspector/sharing.py",
        'json = json.replace(b"<", rb"\\u003c")', "json = json",
        "a text of a model runs as a script in a shared page", ("tests/inspector/test_sharing.py",),
    ),
)  # fmt: skip
