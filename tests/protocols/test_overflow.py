"""Context overflow in the words of each server (R28.6)."""

from __future__ import annotations

import pytest

from tests.cases import every
from toolwire.protocols.messages.errors import overflow_message
from toolwire.protocols.shared.server_errors import Overflow, is_overflow, overflow_fault, read_overflow

SAID = [
    # vLLM
    (
        "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens,"
        " which exceeds this limit even without any output tokens. (parameter=input_tokens, value=4097)",
        Overflow(4097, 0, 4096),
    ),
    (
        "This model's maximum context length is 4096 tokens. However, you requested 4000 output tokens and your prompt"
        " contains at least 97 input tokens, for a total of at least 4097 tokens.",
        Overflow(97, 4000, 4096),
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 tokens"
        " and your request has 1000 input tokens (5000 > 4096 - 1000).",
        Overflow(1000, 5000, 4096),
    ),
    (
        "You passed 57345 input tokens and requested 8192 output tokens. However, the model's context length is only 65536"
        " tokens, resulting in a maximum input length of 57344 tokens. (parameter=input_tokens, value=57345)",
        Overflow(57345, 8192, 65536),
    ),
    (
        "You passed 500000 input characters and requested 0 output tokens. However, the model's context length is only 8192"
        " tokens, resulting in a maximum input length of 8192 tokens (at most 300000 characters).",
        None,
    ),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", Overflow(5000, 0, 4096)),
    # llama.cpp
    ("request (6030 tokens) exceeds the available context size (4096 tokens), try increasing it", Overflow(6030, 0, 4096)),
    ("the request exceeds the available context size. try increasing the context size", None),
    # SGLang
    ("The input (6030 tokens) is longer than the model's context length (4096 tokens).", Overflow(6030, 0, 4096)),
    ("Input length (5000 tokens) exceeds the maximum allowed length (4090 tokens). Use a shorter input.", Overflow(5000, 0, 4090)),
    (
        "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of 5000"
        " tokens: 1000 tokens from the input messages and 4000 tokens for the completion.",
        Overflow(1000, 4000, 4096),
    ),
    # OpenAI, DeepSeek, OpenRouter, xAI
    (
        "This model's maximum context length is 102400 tokens. However, you requested 107837 tokens (99645 in the"
        " messages, 8192 in the completion). Please reduce the length of the messages or completion.",
        Overflow(99645, 8192, 102400),
    ),
    (
        "This model's maximum context length is 4097 tokens. However, your messages resulted in 5000 tokens (4900 in the"
        " messages, 100 in the functions).",
        Overflow(5000, 0, 4097),
    ),
    (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 150000 tokens (100000 of"
        " text input, 20000 of tool input, 30000 in the output).",
        Overflow(120000, 30000, 131072),
    ),
    ("This model's maximum prompt length is 131072 but the request contains 150000 tokens.", Overflow(150000, 0, 131072)),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    # TGI, LM Studio, Ollama
    ("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and 500" " `max_new_tokens`", Overflow(4000, 500, 4096)),
    ("Input validation error: `inputs` must have less than 4095 tokens. Given: 5000", Overflow(5000, 0, 4095)),
    (
        "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 8210>= n_ctx:"
        " 4096). Try to load the model with a larger context length",
        Overflow(8210, 0, 4096),
    ),
    (
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context"
        " length of only 4096 tokens, which is not enough.",
        Overflow(5000, 0, 4096),
    ),
    ("Reached context length of 4096 tokens with model (arch: qwen3), but this model does not currently support mid-generation context overflow.", None),
    ("prompt too long; exceeded max context length by 4 tokens", None),
    # Gemini, Mistral, Moonshot, Z.ai, Cohere, Fireworks, Copilot, MiniMax, Bedrock
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", Overflow(1200000, 0, 1048576)),
    ("Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length", Overflow(40000, 0, 32768)),
    ("Your request exceeded model token limit: 131072 (requested: 200000)", Overflow(200000, 0, 131072)),
    ("Prompt exceeds max length", None),
    ("too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try using a shorter" " prompt", Overflow(5000, 0, 4081)),
    ("The prompt is too long: 40000, model maximum context length: 32767", Overflow(40000, 0, 32767)),
    ("prompt token count of 140000 exceeds the limit of 128000", Overflow(140000, 0, 128000)),
    ("invalid params, context window exceeds limit", None),
    ("Input is too long for requested model.", None),
    ("Input exceeds the max input token limit", None),
    # Poolside, SiliconFlow, TensorRT-LLM, Cohere
    ("Input length 131393 exceeds the maximum allowed input length of 131040 tokens.", Overflow(131393, 0, 131040)),
    ("length of prompt_tokens (140000) must be less than max_seq_len (131072).", Overflow(140000, 0, 131072)),
    ("The sum of prompt length (9351.0), query length (0) should not exceed max_num_tokens (8192)", Overflow(9351, 0, 8192)),
    ("Prompt length (5056) exceeds maximum input length (4096)", Overflow(5056, 0, 4096)),
    ("total tokens exceeds the model's max of 4096", None),
    ("The request exceeds the maximum number of tokens", None),
    # Anthropic's own
    ("prompt is too long: 219898 tokens > 200000 maximum", Overflow(219898, 0, 200000)),
    (
        "input length and `max_tokens` exceed context limit: 186433 + 20000 > 200000, decrease input length or"
        " `max_tokens` and try again",
        Overflow(186433, 20000, 200000),
    ),
    # the gateway's own `prompt_guard`
    ("The prompt has about 5,000 tokens; at most 4,000 are allowed here.", Overflow(5000, 0, 4000)),
    ("The prompt has 5000 characters; at most 4000 are allowed here.", None),
]  # fmt: skip


@every(("text", "counts"), SAID)
def test_counts(text: str, counts: Overflow | None) -> None:
    assert read_overflow(text) == counts


@every("text", [text for text, _ in SAID if "allowed here" not in text])
def test_an_overflow_is_recognised(text: str) -> None:
    assert is_overflow(text)


@every(("text", "counts"), SAID)
def test_an_overflow_is_said_in_words_of_openai(text: str, counts: Overflow | None) -> None:
    """Vibe, OpenHands and LiteLLM look for them, whatever the code is. The counts stay, and known words do. They come
    first, because a long message is cut."""
    message = overflow_fault(text).message
    if "maximum context length" in text.lower():
        assert message == text
    else:
        assert message.startswith("This model's maximum context length is ")
        assert "Please reduce the length of the messages" in message
        assert counts is not None or message.endswith(text)
    assert read_overflow(message) == counts
    assert overflow_fault(message).message == message
    assert overflow_message(message) == overflow_message(text)  # for clients of Messages


@pytest.mark.parametrize(
    "text",
    [
        "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 8000",
        "max_tokens: 64000 > 8192, which is the maximum allowed number of output tokens for this model",
        "messages.3.content: string too long, expected at most 10 characters",
        "The tool's description is too long.",
        "context is not a supported parameter",
        "Number of input tokens has exceeded your per-minute rate limit",
        "The input exceeds the limit of 20 images",
        "The image input exceeds the maximum size",
        "The input exceeds the limit of 20 MB",
        "Total length exceeds the limit of 1048576 bytes",
        "total exceeds the limit of 128 tools",
        "max_tokens (100000) exceeds the maximum of 8192",
    ],
)
def test_other_refusals_are_none(text: str) -> None:
    assert not is_overflow(text)
