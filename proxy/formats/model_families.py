"""The format that a family of models was trained on, found by the model's name or by its chat template."""

from __future__ import annotations

import re
from functools import lru_cache
from operator import itemgetter
from typing import Final

from .base import families

_UNKNOWN: Final = r"(deepseek[-_.]?)?r1[-_]?distill|deepseek[-_]?r1:(1\.5|7|8|14|32|70)b"
"""Names of models that were not trained to call tools, although the models they are derived from were."""


# A family's name begins a word; Ollama and Bedrock write the version directly after it.
_PATTERNS: Final = tuple(
    (derived, re.compile(rf"(?<![a-z])(?:{pattern})"), name)
    for derived, pattern, name in (
        (True, _UNKNOWN, None),
        *((True, pattern, made.name) for made in families() for pattern in made.models.derived),
        *((False, pattern, made.name) for made in families() for pattern in made.models.names),
    )
)
"""Patterns of names with their formats, each with whether it is one of `Models.derived`."""

_DISTILLED: Final = re.compile(r"(?<!r1[-_])distill(?:ed|ation)?(?:[-_](?:in)?to)?[-_]")
"""The word between a teacher's name and the model's own, or after both."""
_PATH: Final = re.compile(r"[/\\]|--")
_UNNAMED: Final = re.compile(r"(?:[0-9a-f]{12,64}|(?:ggml-)?model[^/]*|main|snapshots|gguf|mlx)(?:\.gguf)?")
"""Components of paths that do not name a model: hashes of revisions, and `model.gguf`."""


def format_for(model: str) -> str | None:
    """Returns the name of the format that this model was trained on, or None if its name does not tell.

    Vendors before a slash, tags after a colon, suffixes of GGUF files and of quantisation are ignored. In a path the
    last component that can name a model counts: `models--org--name/snapshots/HASH`, `name/model.gguf`.
    """
    return _format_for(model[:256])


@lru_cache(maxsize=1024)  # a pure function, asked for every request; clients choose the names
def _format_for(model: str) -> str | None:
    name = model.lower().replace(" ", "-").rstrip("/")
    components = [part for part in _PATH.split(name) if part]
    # The last component names the model; those before it, such as `meta-llama/`, are names of vendors and folders.
    name = next((part for part in reversed(components) if not _UNNAMED.fullmatch(part)), "")
    if found := _DISTILLED.search(name):  # `deepseek-v3.1-distill-qwen3-4b` is a Qwen3; `qwen3-4b-kimi-k2-distill` too
        return _family(name[found.end() :]) or _first(name)
    return _first(name) if "distill" in name else _family(name)


def _matches(name: str, derived: bool) -> list[tuple[int, int, str | None]]:
    """Returns the matches in a name: the length of each, the negative of where it begins, and the format."""
    return [
        (len(found[0]), -found.start(), format_name)
        for of_derived, pattern, format_name in _PATTERNS
        if of_derived == derived and (found := pattern.search(name))
    ]


def _family(name: str) -> str | None:
    """Returns the format of the longest match, that of derived models if there is one."""
    matches = _matches(name, derived=True) or _matches(name, derived=False)
    return max(matches, key=itemgetter(0, 1))[-1] if matches else None


def _first(name: str) -> str | None:
    """Returns the format whose match begins first: the model's own, if its teachers are named after it."""
    matches = (*_matches(name, derived=True), *_matches(name, derived=False))
    return max(matches, key=itemgetter(1, 0))[-1] if matches else None


_TEMPLATE_MARKS: Final[tuple[tuple[tuple[str, ...], str | None], ...]] = tuple(
    sorted(
        (
            (("<|tool_calls|>", "<|tool_call:begin|>"), None),  # Solar Open, whose form is not known here
            *((marks, made.name) for made in families() for marks in made.models.templates),
        ),
        key=lambda row: -len("".join(row[0])),
    )
)
"""Literals that occur together in a chat template, and the format: those with the most characters first."""


def format_of_template(template: str) -> str | None:
    """Returns the name of the format in which a chat template writes calls, or None if it is unknown."""
    # Templates come from servers: a cache must not keep large ones.
    return _format_of_template(template) if len(template) <= 64 * 1024 else _format_of_template.__wrapped__(template)


@lru_cache(maxsize=64)
def _format_of_template(template: str) -> str | None:
    # Quotes inside a template's strings may be escaped.
    plain = template.replace('\\"', '"')
    return next((found for marks, found in _TEMPLATE_MARKS if all(mark in plain for mark in marks)), None)
