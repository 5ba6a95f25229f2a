"""Finish reasons: the words of all servers, their meaning, and the words that clients get (R29.3).

Rules:

1. `MEANS` is the only table of servers' words, `FINISH_WORDS` the only one of clients' words. Case does not matter. Of
   a word with a prefix (Gemini: `content_filter: SAFETY`) the last part counts, then the first.
2. An unknown word is kept and logged. A call that is incomplete at such an end is dropped (`FinishReason.WHOLE`).
3. A word that means an error is a fault of the server, like a stream without an end.

Sources: the references of OpenAI, Azure, Anthropic, Gemini, Bedrock, Mistral, Cohere, DeepSeek, z.ai, OpenRouter; the
code of vLLM, SGLang, llama.cpp, TGI, Ollama.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...errors import BackendFault, quote
from ...model import FinishReason
from .noise import UNKNOWN_END, Note, ignore_note

ERROR: Final = "error"
"""Meaning of words that are faults. No answer has it as its reason: `read_end` raises an error."""

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
"""Meaning of each word in lower case."""

UNUSUAL_END: Final = (
    rb'_reason" ?: ?"(?!(?:'
    rb'stop|length|tool_calls|function_call|content_filter|end_turn|tool_use|max_tokens|stop_sequence)")'
)
"""Pattern of a finish reason in JSON that may mean an error. The usual words do not match, so that few answers that are
sent unread have to be parsed."""


@dataclass(frozen=True, slots=True)
class FinishWords:
    """The words of each client protocol for one reason: Chat's `finish_reason`, Messages' `stop_reason`, and Responses'
    reason in `incomplete_details`, None if the response is complete."""

    chat: str
    messages: str
    responses: str | None


_FINE: Final = FinishWords("stop", "end_turn", None)
FINISH_WORDS: Final[Mapping[str, FinishWords]] = {
    FinishReason.STOP: _FINE,
    FinishReason.TOOL_CALLS: _FINE,  # an answer with calls gets the protocol's own word for calls
    FinishReason.LENGTH: FinishWords("length", "max_tokens", "max_output_tokens"),
    FinishReason.CONTENT_FILTER: FinishWords("content_filter", "refusal", "content_filter"),
    FinishReason.PAUSED: FinishWords("stop", "pause_turn", None),
    FinishReason.COMPACTED: FinishWords("stop", "compaction", None),
}


def finish_words(reason: str) -> FinishWords:
    """Returns the clients' words for an answer without calls that ended for `reason`, which may be any server's word,
    because middlewares and other kinds of backends use them too."""
    known = FINISH_WORDS.get(reason)
    return FINISH_WORDS.get(MEANS.get(reason.lower(), FinishReason.STOP), _FINE) if known is None else known


def meaning(word: str) -> str | None:
    """Returns the meaning of a server's word; None if it is unknown."""
    known = MEANS.get(word)
    if known is not None:
        return known
    parts = [part.strip() for part in word.lower().split(":")]
    return next((MEANS[part] for part in (parts[-1], parts[0]) if part in MEANS), None)


def cut_off_reason(reason: str) -> str:
    """Returns the reason of an answer whose call was cut off: `LENGTH` if `reason` is an unknown word, because the
    answer must not look successful."""
    return reason if reason in FINISH_WORDS else FinishReason.LENGTH


def read_end(word: str, note: Note = ignore_note) -> str:
    """Returns the `FinishReason` of a server's word, or the word itself if it is unknown, which is noted. Raises
    `BackendFault` for a word that means an error."""
    known = meaning(word)
    if known == ERROR:
        message = f"The model server ended its answer with {quote(word)}, which is an error."
        raise BackendFault(message, transient=True)
    if known is None:
        note(UNKNOWN_END, word)
        return word
    return known
