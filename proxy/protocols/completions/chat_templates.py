"""How a conversation becomes one text, for model servers that know no roles.

Rules:

1. What a message says cannot begin or end a turn: whatever a template writes around turns, and every control token that
   is known of any model, gets a backslash behind its first character where it stands in a text
   (`toolwire.formats.engine.escaping`). `ChatTemplate.markers` are all of these.
2. Nothing is written before the first turn: servers put the token for the beginning of a text there by themselves.
3. If the assistant speaks last its turn stays open, and the model goes on with it; else a turn of it is begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from toolwire.formats.engine.escaping import Escaping
from toolwire.formats.engine.templates import ALL

LABELS: Final = ("System:", "User:", "Assistant:")
_LABELLED: Final = tuple(f"\n{form(label)}" for label in LABELS for form in (str, str.lower, str.upper))
"""How a turn begins in a text without control tokens."""


class Said(NamedTuple):
    """One turn: `role` is `system`, `user` or `assistant`."""

    role: str
    text: str


class ChatTemplate(Protocol):
    """Writes conversations."""

    stops: tuple[str, ...]
    """What ends the model's turn, as text."""
    markers: frozenset[str]
    """What no text may hold."""

    def render(self, turns: Sequence[Said]) -> str:
        """The text for these turns, which hold no markers, up to where the model goes on. Raises `ValueError` for a
        conversation that cannot be written."""


@dataclass(frozen=True, slots=True)
class TurnTemplate(ChatTemplate):
    """A template in which each turn stands between two texts: `around` has them by role. `between` two turns stands
    more. `alternates`: user and assistant take turns, so neighbours are put together; `system` is a role of its own,
    or what it says is put before the next words of the user. `open` is how a turn of the assistant begins. `trims`: no
    turn ends with whitespace."""

    around: Mapping[str, tuple[str, str]]
    open: str
    stops: tuple[str, ...]
    markers: frozenset[str]
    between: str = ""
    alternates: bool = False
    system: bool = True
    trims: bool = False

    def render(self, turns: Sequence[Said]) -> str:
        """See `ChatTemplate.render`."""
        said = list(turns)
        if not self.system:
            said = _with_system_in_user(said)
        if self.alternates:
            said = _together(said)
        last = len(said) - 1
        written = []
        for number, (role, text) in enumerate(said):
            before, after = self.around[role]
            unfinished = number == last and role == "assistant"
            turn = f"{before}{text}" if unfinished else f"{before}{text}{after}"
            written.append(turn.rstrip() if self.trims else turn)
        if not said or said[-1].role != "assistant":
            written.append(self.open)
        return self.between.join(written)


def _with_system_in_user(turns: list[Said]) -> list[Said]:
    """The turns, with what the system says before the next words of the user."""
    out: list[Said] = []
    waiting: list[str] = []
    for turn in turns:
        if turn.role == "system":
            waiting.append(turn.text)
            continue
        if waiting:
            text = "\n\n".join(waiting)
            waiting.clear()
            out.append(Said("user", f"{text}\n\n{turn.text}" if turn.role == "user" else text))
            if turn.role == "user":
                continue
        out.append(turn)
    return [*out, Said("user", "\n\n".join(waiting))] if waiting else out


def _together(turns: list[Said]) -> list[Said]:
    return [
        Said(role, "\n\n".join(turn.text for turn in several))
        for role, several in groupby(turns, key=lambda turn: turn.role)
    ]


PLAIN: Final = TurnTemplate(
    {role: (f"{label} ", "") for role, label in zip(("system", "user", "assistant"), LABELS, strict=True)},
    "Assistant:",
    ("\nUser:",),
    ALL.union(_LABELLED),
    between="\n\n",
    trims=True,
)

TEMPLATES: Final[Mapping[str, TurnTemplate]] = {
    "plain": PLAIN,
    "chatml": TurnTemplate(
        {role: (f"<|im_start|>{role}\n", "<|im_end|>\n") for role in ("system", "user", "assistant")},
        "<|im_start|>assistant\n",
        ("<|im_end|>",),
        ALL,
    ),
    "llama3": TurnTemplate(
        {
            role: (f"<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>")
            for role in ("system", "user", "assistant")
        },
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ("<|eot_id|>",),
        ALL,
    ),
    "mistral": TurnTemplate(
        {"user": ("[INST] ", "[/INST]"), "assistant": (" ", "</s>")},
        "",
        ("</s>",),
        ALL,
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
        ALL,
        alternates=True,
        system=False,
    ),
}
"""By name. The texts are those that the models' publishers give."""


def template_for(name: str | None, options: Mapping[str, Any]) -> ChatTemplate:
    """The template of this name, or in this file; `plain` without a name. `options`: `bos_token` and `eos_token` of a
    file. Raises `ValueError` for one that cannot be used."""
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
        from toolwire.protocols.completions.jinja_template import JinjaTemplate
    except ImportError as error:
        raise ValueError(f"{name}: a template in a file needs `pip install 'toolwire[templates]'`") from error
    return JinjaTemplate(source, **{key: str(options[key]) for key in ("bos_token", "eos_token") if key in options})


class Guard:
    """Takes the meaning out of the markers of a template in texts that nobody has looked through."""

    def __init__(self, markers: frozenset[str]) -> None:
        self._all = Escaping(markers)
        self._at_lines = Escaping([marker for marker in markers if marker.startswith("\n")])

    def text(self, pieces: Sequence[str], *, guarded: bool) -> str:
        """The pieces as lines of one text. `guarded`: none holds a marker by itself."""
        text = "\n".join(pieces)
        if not guarded:
            return self._all.without_bare(text)
        return text if len(pieces) < 2 else self._at_lines.without_bare(text)
