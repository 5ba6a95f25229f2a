"""Chat templates in Jinja files, as models are published with them. Needs `jinja2` (the extra `templates`).

Rules:

1. A template runs in jinja2's immutable sandbox: it gets strings only, no object of the gateway. It is the operator's
   file, so it is trusted to terminate.
2. A message is a role and one text. Tools and calls are in the texts already.
3. All literal text of a template (its words and their control tokens) becomes markers, which must not occur in
   messages. Roles that it writes from a variable are escaped at the beginning of a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...formats.families import control_tokens
from .chat_templates import PLAIN, ChatTemplate, TemplateTurn

_TOKEN: Final = re.compile(r"<[|｜][^<>|｜\s]{1,40}[|｜]>|<[/\w:]{1,40}>|\[/?[A-Z_]{2,40}\]|<<?/?[A-Z_]{2,40}>>?")
"""Pattern of texts that look like a control token."""
_WORDS: Final = re.compile(r"[^\w\s]")
_LEAST: Final = 3
"""Minimum length of a template's word to become a marker."""

_ENDS: Final = ("<|im_end|>", "<|eot_id|>", "<|eot|>", "<|end|>", "<end_of_turn>", "<turn|>", "<|return|>", "</s>")
"""Ends of the model's turn in the templates of well-known models."""


class JinjaTemplate(ChatTemplate):
    """A Jinja template with the text `source`. Raises `ValueError` if it cannot be parsed."""

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
            raise ValueError(f"not a valid template: {error}") from error
        tokens = {token for word in words for token in _TOKEN.findall(word)}
        self.stops = tuple(end for end in _ENDS if end in tokens)[:1]
        if eos_token is None:
            eos_token = self.stops[0] if self.stops else ""
        elif eos_token:
            self.stops = (eos_token,)
        shown = {word for word in words if len(word) >= _LEAST and _WORDS.search(word)}
        own = {token for token in (bos_token, eos_token) if token}
        self.markers = control_tokens().union(PLAIN.markers, tokens, shown, own)
        self._variables = {"bos_token": bos_token, "eos_token": eos_token, "tools": None, "documents": None}

    def render(self, turns: Sequence[TemplateTurn]) -> str:
        """Returns the text of these turns; see `ChatTemplate.render`. A last turn of the assistant stays open."""
        rendered = list(turns)
        rest = rendered.pop().text if rendered and rendered[-1].role == "assistant" else ""
        messages = [{"role": role, "content": text} for role, text in rendered]
        try:
            return self._template.render(messages=messages, add_generation_prompt=True, **self._variables) + rest
        except TemplateError as error:
            raise ValueError(str(error) or type(error).__name__) from error
        except Exception as error:  # expressions of a template may raise anything
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _words(parsed: nodes.Template) -> Iterator[str]:
    """Yields the literal text of a template, line by line and stripped."""
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
