"""Why answers end: every word that servers use, its meaning, and the words that clients are told (R29.3).

Rules:

1. `MEANS` is the only table of servers' words, `TOLD` the only one of clients'. Case does not matter; of a word with a
   prefix (Gemini: `content_filter: SAFETY`) the last part counts, else the first.
2. A word that is not known stays as it is: it is said in the log, and a call that is not whole then is none
   (`FinishReason.WHOLE`).
3. An end that is an error is a fault of the server, as a stream without any end is.

Sources: the references of OpenAI, Azure, Anthropic, Gemini, Bedrock, Mistral, Cohere, DeepSeek, z.ai, OpenRouter; the
code of vLLM, SGLang, llama.cpp, TGI, Ollama.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolwire.errors import BackendFault, quote
from toolwire.model import FinishReason
from toolwire.protocols.shared.noise import UNKNOWN_END, Note, unnoted

ERROR: Final = "error"
"""The meaning of ends that are faults. No answer has it: a reader raises them (`read_end`)."""

_WORDS: Final[Mapping[str, str]] = {
    FinishReason.STOP: """
        stop end_turn stop_sequence eos eos_token complete completed stopped word done finished
        finish_reason_unspecified stop_token endoftext end_of_text
    """,
    FinishReason.TOOL_CALLS: "tool_calls tool_call tool_use function_call function_calls",
    FinishReason.LENGTH: """
        length max_tokens max_output_tokens max_completion_tokens max_new_tokens model_length token_limit limit
        max_length repetition context_length context_length_exceeded model_context_window_exceeded time_limit
    """,
    FinishReason.CONTENT_FILTER: """
        content_filter content_filtered filtered refusal sensitive safety guardrail_intervened recitation language
        blocklist prohibited_content spii other image_safety image_prohibited_content image_recitation image_other
        no_image error_toxic blocked model_armor
    """,
    ERROR: """
        error network_error abort aborted cancelled canceled failed timeout insufficient_system_resource
        malformed_function_call malformed_response malformed_model_output malformed_tool_use unexpected_tool_call
        too_many_tool_calls missing_thought_signature internal_error server_error not_finished
    """,
    FinishReason.PAUSED: "pause_turn",
    FinishReason.COMPACTED: "compaction",
}

MEANS: Final[Mapping[str, str]] = {word: meaning for meaning, words in _WORDS.items() for word in words.split()}
"""The meaning of each word, which is in lower case."""


@dataclass(frozen=True, slots=True)
class Told:
    """The words of each client protocol for one meaning: `finish_reason`, `stop_reason`, and the reason in
    `incomplete_details`, None if the response is complete."""

    chat: str
    messages: str
    responses: str | None


_FINE: Final = Told("stop", "end_turn", None)
TOLD: Final[Mapping[str, Told]] = {
    FinishReason.STOP: _FINE,
    FinishReason.TOOL_CALLS: _FINE,  # where calls are that are told, their own word is
    FinishReason.LENGTH: Told("length", "max_tokens", "max_output_tokens"),
    FinishReason.CONTENT_FILTER: Told("content_filter", "refusal", "content_filter"),
    FinishReason.PAUSED: Told("stop", "pause_turn", None),
    FinishReason.COMPACTED: Told("stop", "compaction", None),
}


def told(reason: str) -> Told:
    """What clients are told of an answer that ended for `reason`, and holds no calls. Middlewares and backends of other
    kinds may have used any server's word."""
    known = TOLD.get(reason)
    return TOLD.get(MEANS.get(reason.lower(), FinishReason.STOP), _FINE) if known is None else known


def meaning(word: str) -> str | None:
    """What a server means by a word; None if that is not known."""
    known = MEANS.get(word)
    if known is not None:
        return known
    parts = [part.strip() for part in word.lower().split(":")]
    return next((MEANS[part] for part in (parts[-1], parts[0]) if part in MEANS), None)


def of_cut(reason: str) -> str:
    """The reason of an answer whose call was cut off: under a word that is not known it is a limit, for it is no
    success."""
    return reason if reason in TOLD else FinishReason.LENGTH


def read_end(word: str, note: Note = unnoted) -> str:
    """The reason (`FinishReason`) that a server's word means; the word itself if it is not known, which is noted.
    Raises `BackendFault` for an end that is an error."""
    known = meaning(word)
    if known == ERROR:
        message = f"The model server ended its answer with {quote(word)}, which is an error."
        raise BackendFault(message, transient=True)
    if known is None:
        note(UNKNOWN_END, word)
        return word
    return known
