"""Asks a model server how many tokens a prompt has (R11.6), and for the rendered prompt (R31.1a): paths, requests and
answers of each engine.

Rules:

1. The request is counted as it would be sent, in the server's own chat template.
2. An invalid answer counts as none; the gateway then counts itself.

The endpoints are: vLLM and SGLang `/tokenize` with messages or a prompt, llama.cpp `/apply-template` and `/tokenize`,
Text Generation Inference `/chat_tokenize`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Posts an object to one of the engine's own paths and returns the parsed answer, or None if there is none."""

BY_SERVER: Final = "backend"
"""Name of the tokenizer in the usage if the server counted."""

MOST: Final = 1 << 40
"""A larger count is treated as invalid."""

_PROMPT: Final = ("model", "messages", "prompt", "tools", "chat_template_kwargs", "add_generation_prompt")
"""Fields of a request that determine its prompt."""
_NO_MARKERS: Final = {"add_special_tokens": False}


async def count(engine: str | None, body: Mapping[str, Any], ask: Ask) -> int | None:
    """Returns the number of tokens in the prompt of the request `body` on a server of this `engine`; None if the server
    cannot tell. For an unknown engine the most common path is tried."""
    counter = _COUNTERS.get(engine)
    return None if counter is None else await counter({key: body[key] for key in _PROMPT if key in body}, ask)


async def count_text(engine: str | None, model: str, text: str, ask: Ask) -> int | None:
    """Returns the number of tokens in a text; None if the server cannot tell."""
    counter = _COUNTERS.get(engine)
    return None if counter is None else await counter({"model": model, "prompt": text, **_NO_MARKERS}, ask)


async def rendered(engine: str | None, body: Mapping[str, Any], ask: Ask) -> str | None:
    """Returns the prompt that the server's chat template makes of the request `body`; None if the server cannot
    tell."""
    renderer = _RENDERERS.get(engine)
    return None if renderer is None else await renderer({key: body[key] for key in _PROMPT if key in body}, ask)


def renders(engine: str | None) -> bool:
    """True if servers of this engine support `rendered`."""
    return engine in _RENDERERS


def counted(value: Any) -> int | None:
    """Returns a valid token count from a number, or the length of a list of tokens; None for anything else."""
    if isinstance(value, list):
        return len(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= MOST else None


async def _by_messages(prompt: Mapping[str, Any], ask: Ask) -> int | None:
    answer = await ask("tokenize", prompt)
    return counted(answer.get("count")) or counted(answer.get("tokens")) if isinstance(answer, dict) else None


async def _by_template(prompt: Mapping[str, Any], ask: Ask) -> int | None:
    text, markers = prompt.get("prompt"), prompt.get("add_special_tokens", True)
    if text is None:
        answer = await ask("apply-template", prompt)
        text = answer.get("prompt") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        return None
    answer = await ask("tokenize", {"content": text, "add_special": markers, "parse_special": True})
    return counted(answer.get("tokens")) if isinstance(answer, dict) else None


async def _by_chat(prompt: Mapping[str, Any], ask: Ask) -> int | None:
    text = prompt.get("prompt")
    if text is not None:
        return counted(await ask("tokenize", {"inputs": text, **_NO_MARKERS}))
    answer = await ask("chat_tokenize", prompt)
    return counted(answer.get("tokenize_response")) if isinstance(answer, dict) else None


async def _by_tokens(prompt: Mapping[str, Any], ask: Ask) -> str | None:
    answer = await ask("tokenize", prompt)
    tokens = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(tokens, list):
        return None
    answer = await ask("detokenize", {"model": prompt.get("model"), "tokens": tokens})
    return _text(answer, "prompt") or _text(answer, "text")


async def _by_own_template(prompt: Mapping[str, Any], ask: Ask) -> str | None:
    return _text(await ask("apply-template", prompt), "prompt")


def _text(answer: Any, name: str) -> str | None:
    text = answer.get(name) if isinstance(answer, dict) else None
    return text if isinstance(text, str) else None


_RENDERERS: Final[Mapping[str | None, Callable[[Mapping[str, Any], Ask], Awaitable[str | None]]]] = {
    "vllm": _by_tokens,
    "sglang": _by_tokens,
    "llamacpp": _by_own_template,
}
_COUNTERS: Final[Mapping[str | None, Callable[[Mapping[str, Any], Ask], Awaitable[int | None]]]] = {
    None: _by_messages,
    "vllm": _by_messages,
    "sglang": _by_messages,
    "toolwire": _by_messages,
    "llamacpp": _by_template,
    "tgi": _by_chat,
}
