"""How many tokens a prompt has, by the server that would get it (R11.6), and what the prompt is (R31.1a): what is
asked, where, and what is answered.

Rules:

1. What is counted is the request as it would be sent, in the server's own chat template.
2. A server that cannot say, or says nonsense, has said nothing: the gateway counts itself then.

The forms are those of the engines' servers: vLLM and SGLang `/tokenize` with messages or a prompt, llama.cpp
`/apply-template` and `/tokenize`, Text Generation Inference `/chat_tokenize`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Posts an object to one of the engine's own paths: the parsed answer, None if there is none."""

BY_SERVER: Final = "backend"
"""With what was counted, if a server did."""

MOST: Final = 1 << 40
"""No prompt has more: such a number is none."""

_PROMPT: Final = ("model", "messages", "prompt", "tools", "chat_template_kwargs", "add_generation_prompt")
_NO_MARKERS: Final = {"add_special_tokens": False}
"""Fields of a request that make up its prompt."""


async def count(engine: str | None, body: Mapping[str, Any], ask: Ask) -> int | None:
    """Tokens of the prompt that the request `body` would make on a server of this kind; None: it cannot say. One of
    which nothing is known is asked as most can be."""
    way = _WAYS.get(engine)
    return None if way is None else await way({key: body[key] for key in _PROMPT if key in body}, ask)


async def count_text(engine: str | None, model: str, text: str, ask: Ask) -> int | None:
    """Tokens of a text alone."""
    way = _WAYS.get(engine)
    return None if way is None else await way({"model": model, "prompt": text, **_NO_MARKERS}, ask)


async def rendered(engine: str | None, body: Mapping[str, Any], ask: Ask) -> str | None:
    """The prompt that the server's chat template makes of the request `body`; None: it cannot say."""
    way = _RENDERERS.get(engine)
    return None if way is None else await way({key: body[key] for key in _PROMPT if key in body}, ask)


def renders(engine: str | None) -> bool:
    """Whether a server of this kind can say what `rendered` asks."""
    return engine in _RENDERERS


def counted(value: Any) -> int | None:
    """A number of tokens, or the tokens, as a number."""
    if isinstance(value, list):
        return len(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= MOST else None


async def _by_messages(prompt: Mapping[str, Any], ask: Ask) -> int | None:
    said = await ask("tokenize", prompt)
    return counted(said.get("count")) or counted(said.get("tokens")) if isinstance(said, dict) else None


async def _by_template(prompt: Mapping[str, Any], ask: Ask) -> int | None:
    text, markers = prompt.get("prompt"), prompt.get("add_special_tokens", True)
    if text is None:
        said = await ask("apply-template", prompt)
        text = said.get("prompt") if isinstance(said, dict) else None
    if not isinstance(text, str):
        return None
    said = await ask("tokenize", {"content": text, "add_special": markers, "parse_special": True})
    return counted(said.get("tokens")) if isinstance(said, dict) else None


async def _by_chat(prompt: Mapping[str, Any], ask: Ask) -> int | None:
    text = prompt.get("prompt")
    if text is not None:
        return counted(await ask("tokenize", {"inputs": text, **_NO_MARKERS}))
    said = await ask("chat_tokenize", prompt)
    return counted(said.get("tokenize_response")) if isinstance(said, dict) else None


async def _by_tokens(prompt: Mapping[str, Any], ask: Ask) -> str | None:
    said = await ask("tokenize", prompt)
    tokens = said.get("tokens") if isinstance(said, dict) else None
    if not isinstance(tokens, list):
        return None
    said = await ask("detokenize", {"model": prompt.get("model"), "tokens": tokens})
    return _text(said, "prompt") or _text(said, "text")


async def _by_own_template(prompt: Mapping[str, Any], ask: Ask) -> str | None:
    return _text(await ask("apply-template", prompt), "prompt")


def _text(said: Any, name: str) -> str | None:
    text = said.get(name) if isinstance(said, dict) else None
    return text if isinstance(text, str) else None


_RENDERERS: Final[Mapping[str | None, Callable[[Mapping[str, Any], Ask], Awaitable[str | None]]]] = {
    "vllm": _by_tokens,
    "sglang": _by_tokens,
    "llamacpp": _by_own_template,
}
_WAYS: Final[Mapping[str | None, Callable[[Mapping[str, Any], Ask], Awaitable[int | None]]]] = {
    None: _by_messages,
    "vllm": _by_messages,
    "sglang": _by_messages,
    "toolwire": _by_messages,
    "llamacpp": _by_template,
    "tgi": _by_chat,
}
