"""Chat templates in files, as models are published with them. Needs `jinja2` (the extra `templates`).

Rules:

1. A template runs in jinja2's immutable sandbox: it sees strings, and no object of the gateway. It is the operator's
   file, so it is trusted to end.
2. A message is its role and one text. Tools and calls stand in the texts already.
3. What a template writes itself is no matter of its variables: the words in it, and the control tokens in these, are
   markers that no text may hold. A role that it writes as a variable is one at the beginning of a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from toolwire.formats.engine.templates import ALL
from toolwire.protocols.completions.chat_templates import PLAIN, ChatTemplate, Said

_TOKEN: Final = re.compile(r"<[|｜][^<>|｜\s]{1,40}[|｜]>|<[/\w:]{1,40}>|\[/?[A-Z_]{2,40}\]|<<?/?[A-Z_]{2,40}>>?")
"""What looks like a control token."""
_WORDS: Final = re.compile(r"[^\w\s]")
_LEAST: Final = 3
"""Shorter words of a template are no markers by themselves."""

_ENDS: Final = ("<|im_end|>", "<|eot_id|>", "<|eot|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|return|>", "</s>")
"""What ends the model's turn in the templates of well-known models."""


class JinjaTemplate(ChatTemplate):
    """The template in `source`. Raises `ValueError` if it is none."""

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(raise_exception=_raise, strftime_now=_now)
        try:
            words = set(_words(environment.parse(source)))
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ValueError(f"the template is none: {error}") from error
        tokens = {token for word in words for token in _TOKEN.findall(word)}
        self.stops = tuple(end for end in _ENDS if end in tokens)[:1]
        if eos_token is None:
            eos_token = self.stops[0] if self.stops else ""
        elif eos_token:
            self.stops = (eos_token,)
        shown = {word for word in words if len(word) >= _LEAST and _WORDS.search(word)}
        own = {token for token in (bos_token, eos_token) if token}
        self.markers = ALL.union(PLAIN.markers, tokens, shown, own)
        self._given = {"bos_token": bos_token, "eos_token": eos_token, "tools": None, "documents": None}

    def render(self, turns: Sequence[Said]) -> str:
        """See `ChatTemplate.render`. A turn of the assistant at the end stays open."""
        said = list(turns)
        rest = said.pop().text if said and said[-1].role == "assistant" else ""
        messages = [{"role": role, "content": text} for role, text in said]
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._given) + rest
        except TemplateError as error:
            raise ValueError(str(error) or type(error).__name__) from error
        except Exception as error:  # whatever an expression of the template raises
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _words(parsed: nodes.Template) -> Iterator[str]:
    """What a template can write by itself: line by line, without the whitespace around."""
    for data in parsed.find_all(nodes.TemplateData):
        yield from filter(None, map(str.strip, data.data.split("\n")))
    for constant in parsed.find_all(nodes.Const):
        if isinstance(constant.value, str):
            yield from filter(None, map(str.strip, constant.value.split("\n")))


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
