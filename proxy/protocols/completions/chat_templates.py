"""Chat templates: rendering a conversation as one text, for model servers without roles.

Rules:

1. Text in a message cannot begin or end a turn. Everything that a template writes around turns, and every control token
   known of any model, gets a backslash after its first character where it occurs in a text
   (`toolwire.formats.engine.escaping`). `ChatTemplate.markers` lists all of these.
2. Nothing is written before the first turn: servers add the begin-of-text token themselves.
3. If the last turn is the assistant's, it stays open and the model continues it; otherwise a new assistant turn is
   begun.

Templates in Jinja files, as models are published with them, need `jinja2` (the extra `templates`):

4. A template runs in jinja2's immutable sandbox: it gets strings only, no object of the gateway. It is the operator's
   file, so it is trusted to terminate.
5. A message is a role and one text. Tools and calls are in the texts already.
6. All literal text of a template (its words and their control tokens) becomes markers, which must not occur in
   messages. Roles that it writes from a variable are escaped at the beginning of a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, Protocol

from ...formats.base import control_tokens
from ...formats.engine.escaping import Escaping

if TYPE_CHECKING:
    from jinja2 import nodes

LABELS: Final = ("System:", "User:", "Assistant:")
_LABELLED: Final = tuple(f"\n{form(label)}" for label in LABELS for form in (str, str.lower, str.upper))
"""Beginnings of a turn in a text without control tokens."""


class TemplateTurn(NamedTuple):
    """One turn: `role` is `system`, `user` or `assistant`."""

    role: str
    text: str


class ChatTemplate(Protocol):
    """Interface of chat templates."""

    stops: tuple[str, ...]
    """Texts that end the model's turn."""
    markers: frozenset[str]
    """Texts that must not occur in a message."""

    def render(self, turns: Sequence[TemplateTurn]) -> str:
        """Returns the text of these turns, which contain no markers, up to the point where the model continues. Raises
        `ValueError` for a conversation that the template cannot write."""


@dataclass(frozen=True, slots=True)
class TurnTemplate(ChatTemplate):
    """A template that writes each turn between two texts, which `around` has by role. `between` is written between two
    turns. `alternates`: user and assistant must alternate, so neighbouring turns of one role are joined. `system` is
    False if the template has no system role; system text is then put before the user's next text. `open` begins an
    assistant turn. `trims`: whitespace at the end of each turn is removed."""

    around: Mapping[str, tuple[str, str]]
    open: str
    stops: tuple[str, ...]
    markers: frozenset[str]
    between: str = ""
    alternates: bool = False
    system: bool = True
    trims: bool = False

    def render(self, turns: Sequence[TemplateTurn]) -> str:
        written_turns = list(turns)
        if not self.system:
            written_turns = _with_system_in_user(written_turns)
        if self.alternates:
            written_turns = _together(written_turns)
        last = len(written_turns) - 1
        written = []
        for number, (role, text) in enumerate(written_turns):
            before, after = self.around[role]
            unfinished = number == last and role == "assistant"
            turn = f"{before}{text}" if unfinished else f"{before}{text}{after}"
            written.append(turn.rstrip() if self.trims else turn)
        if not written_turns or written_turns[-1].role != "assistant":
            written.append(self.open)
        return self.between.join(written)


def _with_system_in_user(turns: list[TemplateTurn]) -> list[TemplateTurn]:
    """Returns the turns with each system text put before the user's next text."""
    out: list[TemplateTurn] = []
    waiting: list[str] = []
    for turn in turns:
        if turn.role == "system":
            waiting.append(turn.text)
            continue
        if waiting:
            text = "\n\n".join(waiting)
            waiting.clear()
            out.append(TemplateTurn("user", f"{text}\n\n{turn.text}" if turn.role == "user" else text))
            if turn.role == "user":
                continue
        out.append(turn)
    return [*out, TemplateTurn("user", "\n\n".join(waiting))] if waiting else out


def _together(turns: list[TemplateTurn]) -> list[TemplateTurn]:
    return [
        TemplateTurn(role, "\n\n".join(turn.text for turn in several))
        for role, several in groupby(turns, key=lambda turn: turn.role)
    ]


PLAIN: Final = TurnTemplate(
    {role: (f"{label} ", "") for role, label in zip(("system", "user", "assistant"), LABELS, strict=True)},
    "Assistant:",
    ("\nUser:",),
    control_tokens().union(_LABELLED),
    between="\n\n",
    trims=True,
)

TEMPLATES: Final[Mapping[str, TurnTemplate]] = {
    "plain": PLAIN,
    "chatml": TurnTemplate(
        {role: (f"<|im_start|>{role}\n", "<|im_end|>\n") for role in ("system", "user", "assistant")},
        "<|im_start|>assistant\n",
        ("<|im_end|>",),
        control_tokens(),
    ),
    "llama3": TurnTemplate(
        {
            role: (f"<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>")
            for role in ("system", "user", "assistant")
        },
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ("<|eot_id|>",),
        control_tokens(),
    ),
    "mistral": TurnTemplate(
        {"user": ("[INST] ", "[/INST]"), "assistant": (" ", "</s>")},
        "",
        ("</s>",),
        control_tokens(),
        alternates=True,
        system=False,
    ),
    "gemma": TurnTemplate(
        {
            "user": ("<start_of_turn>user\n", "<end_of_turn>\n"),
            "assistant": ("<start_of_turn>model\n", "<end_of_turn>\n"),
        },
        "<start_of_turn>model\n",
        ("<end_of_turn>",),
        control_tokens(),
        alternates=True,
        system=False,
    ),
}
"""Templates by name. Their texts are those that the models' publishers document."""


# --- templates in Jinja files -----------------------------------------------------------------------------------------

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
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment

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
        self._errors = TemplateError
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
        except self._errors as error:
            raise ValueError(str(error) or type(error).__name__) from error
        except Exception as error:  # expressions of a template may raise anything
            raise ValueError(f"{type(error).__name__}: {error}") from error


def _words(parsed: nodes.Template) -> Iterator[str]:
    """Yields the literal text of a template, line by line and stripped."""
    from jinja2 import nodes

    for data in parsed.find_all(nodes.TemplateData):
        yield from filter(None, map(str.strip, data.data.split("\n")))
    for constant in parsed.find_all(nodes.Const):
        if isinstance(constant.value, str):
            yield from filter(None, map(str.strip, constant.value.split("\n")))


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def template_for(name: str | None, options: Mapping[str, Any]) -> ChatTemplate:
    """Returns the template with this name, or in this file; `plain` without a name. `options`: `bos_token` and
    `eos_token` for a file. Raises `ValueError` if it cannot be used."""
    if name is None:
        return PLAIN
    if name in TEMPLATES:
        return TEMPLATES[name]
    if not name.endswith((".jinja", ".jinja2", ".j2")):
        raise ValueError(
            f"unknown template {name!r}: one of {', '.join(TEMPLATES)}, or a file whose name ends with .jinja"
        )
    try:
        source = Path(name).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from error
    try:
        return JinjaTemplate(source, **{key: str(options[key]) for key in ("bos_token", "eos_token") if key in options})
    except ImportError as error:
        raise ValueError(f"{name}: a template in a file needs `pip install 'toolwire[templates]'`") from error


class Guard:
    """Escapes the markers of a template in text that was not checked yet."""

    def __init__(self, markers: frozenset[str]) -> None:
        self._all = Escaping(markers)
        self._at_lines = Escaping([marker for marker in markers if marker.startswith("\n")])

    def text(self, pieces: Sequence[str], *, guarded: bool) -> str:
        """Returns the pieces as lines of one text, without unescaped markers. `guarded`: single pieces contain none, so
        only those across line breaks are escaped."""
        text = "\n".join(pieces)
        if not guarded:
            return self._all.without_bare(text)
        return text if len(pieces) < 2 else self._at_lines.without_bare(text)
