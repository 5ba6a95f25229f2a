"""Chat templates: rendering a conversation as one text, for model servers without roles.

Rules:

1. Text in a message cannot begin or end a turn. Everything that a template writes around turns, and every control token
   known of any model, gets a backslash after its first character where it occurs in a text
   (`toolwire.formats.engine.escaping`). `ChatTemplate.markers` lists all of these.
2. Nothing is written before the first turn: servers add the begin-of-text token themselves.
3. If the last turn is the assistant's, it stays open and the model continues it; otherwise a new assistant turn is
   begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from ...formats.engine.escaping import Escaping
from ...formats.families import control_tokens

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
        from .jinja_template import JinjaTemplate
    except ImportError as error:
        raise ValueError(f"{name}: a template in a file needs `pip install 'toolwire[templates]'`") from error
    return JinjaTemplate(source, **{key: str(options[key]) for key in ("bos_token", "eos_token") if key in options})


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
