"""The shell commands of a page, and whether `toolwire` takes their arguments."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from toolwire.cli import main

ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class Command(NamedTuple):
    """One command without what stands around it: the variables set for it, its words, what it is read from or written
    to left out."""

    variables: dict[str, str]
    words: list[str]


def simple_commands(text: str) -> Iterator[Command]:
    """The commands of a script, in order: pipes and lists taken apart, `sudo` left out. Raises `ValueError` for an open
    quotation."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>")
        lexer.whitespace_split = True
        command: list[str] = []
        words = [*lexer, ";"]
        while words:
            word = words.pop(0)
            if set(word) <= set("<>"):
                del words[:1]
            elif set(word) <= set("|;&"):
                yield from _command(command)
                command = []
            else:
                command.append(word)


def _command(words: Sequence[str]) -> Iterator[Command]:
    rest = list(words)
    variables = {}
    while rest and (rest[0] == "sudo" or ASSIGNMENT.match(rest[0])):
        name, _, value = rest.pop(0).partition("=")
        if name != "sudo":
            variables[name] = value
            inside = value.startswith("$(")  # what a command says
            while inside and not value.endswith(")") and rest:
                value = rest.pop(0)
    if rest:
        yield Command(variables, rest)


def parsed(arguments: Sequence[str]) -> str | None:
    """What `toolwire` has against these arguments. A command without anything behind it is taken for its name."""
    for word in arguments[1:]:
        if arguments[0] in ("replay", "inspect") and not word.startswith("-"):
            Path(word).touch()  # these commands open their file while they read the command line
    try:
        with contextlib.suppress(click.exceptions.Exit), contextlib.redirect_stdout(io.StringIO()):
            context = main.make_context("toolwire", list(arguments))
            name, command, rest = main.resolve_command(context, list(arguments))
            assert command is not None
            with command.make_context(name, rest, parent=context, resilient_parsing=not rest):
                pass
    except click.ClickException as error:
        return error.format_message()
    return None
