"""Where shells look for completions, and what is put there and taken away again.

Rules of this module:

1. What is written has a mark. A file without it is somebody else's, and is neither overwritten nor removed.
2. Of a start file of the user only the one marked line is touched, as bytes: whatever else is in it stays as it is.
3. Installing twice is the same as once; what is out of date is brought up to date.

The scripts are click's. Sources of the places: bash-completion's README (`BASH_COMPLETION_USER_DIR`), "Completion
System" of zsh's manual, "Where to put completions" of fish's.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

PROGRAM: Final = "toolwire"
MARK: Final = "# written by `toolwire completion install`, removed by `toolwire completion uninstall`"

_BASH_COMPLETION: Final = (
    "/usr/share/bash-completion/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
    "/usr/local/etc/profile.d/bash_completion.sh",
    "/etc/bash_completion",
)
"""What loads bash's completions when they are wanted."""


_LOADED_FIRST: Final = "[[ $zsh_eval_context[-1] == loadautofunc ]]"
_CALLED: Final = f"[[ $funcstack[1] == _{PROGRAM} ]]"
"""How click's script for zsh finds out whether it is called as a function: that is true at the first call only, so the
second press of the tab key would do nothing; and what is true at every call."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the script goes; the start file that has to say so, and its line, if one has to."""

    script: Path
    start_file: Path | None = None
    line: str = ""


def shell_of(env: Mapping[str, str]) -> str | None:
    """The user's shell, by `SHELL`; None: it is none that is known."""
    name = Path(env.get("SHELL", "")).name.removesuffix(".exe")
    return name if name in PLACES else None


def script(shell: str, main: click.Command) -> str:
    """What makes the shell complete the command line `main`."""
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(main, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    first, _, rest = source.replace(_LOADED_FIRST, _CALLED).partition("\n")
    # zsh wants its `#compdef` first of all.
    lines = (first, MARK, rest) if first.startswith("#") else (MARK, first, rest)
    return "\n".join(lines)


def install(shell: str, main: click.Command, env: Mapping[str, str]) -> Iterator[str]:
    """Write what the shell needs; each line says what was done, the last one what is to be done. Raises `OSError`, and
    `FileExistsError` for a file of somebody else's."""
    place = PLACES[shell](env)
    text = script(shell, main).encode()
    there = _read(place.script)
    if there is not None and not _is_ours(there):
        raise FileExistsError(f"{place.script} is there, and not of toolwire: move it away first")
    if there == text:
        yield f"{place.script} is up to date"
    else:
        place.script.parent.mkdir(parents=True, exist_ok=True)
        _replace(place.script, text)
        yield f"wrote {place.script}"
    if place.start_file is not None:
        yield _add_line(place.start_file, place.line)
    yield _next_step(shell, place.script, env)


def uninstall(shell: str, env: Mapping[str, str]) -> Iterator[str]:
    """Remove what `install` has written; each line says what was done. Raises `OSError`."""
    place = PLACES[shell](env)
    there = _read(place.script)
    if there is None:
        yield f"{place.script} is not there"
    elif not _is_ours(there):
        yield f"{place.script} is not of toolwire, and was left alone"
    else:
        place.script.unlink()
        yield f"removed {place.script}"
    content = None if place.start_file is None else _read(place.start_file)
    if place.start_file is not None and content is not None and _is_ours(content):
        rest = _without_line(content)
        if rest:
            _replace(place.start_file, rest)
        else:
            place.start_file.unlink()
        yield f"removed a line from {place.start_file}"


# --- places ---------------------------------------------------------------------------------------------------------


def _bash(env: Mapping[str, str]) -> Place:
    own = env.get("BASH_COMPLETION_USER_DIR")
    folder = Path(own) if own else _xdg(env, "XDG_DATA_HOME", ".local/share") / "bash-completion"
    return Place(folder / "completions" / PROGRAM)


def _zsh(env: Mapping[str, str]) -> Place:
    folder = _xdg(env, "XDG_DATA_HOME", ".local/share") / "zsh" / "site-functions"
    start_file = Path(env.get("ZDOTDIR") or _home(env)) / ".zshrc"
    # Wherever the completion system is started, before this line or behind it, or nowhere: it works.
    line = (
        f"fpath=({shlex.quote(str(folder))} $fpath); if (( $+functions[compdef] )); then autoload -Uz _{PROGRAM} && compdef"
        f" _{PROGRAM} {PROGRAM}; else autoload -Uz compinit && compinit -i; fi {MARK}"
    )
    return Place(folder / f"_{PROGRAM}", start_file, line)


def _fish(env: Mapping[str, str]) -> Place:
    return Place(_xdg(env, "XDG_CONFIG_HOME", ".config") / "fish" / "completions" / f"{PROGRAM}.fish")


PLACES: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""The shells, and where what they need has its place."""


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _xdg(env: Mapping[str, str], name: str, usual: str) -> Path:
    """A folder of the XDG Base Directory Specification, which has relative ones ignored."""
    given = Path(env.get(name, ""))
    return given if given.is_absolute() else _home(env) / usual


def _next_step(shell: str, path: Path, env: Mapping[str, str]) -> str:
    if shell == "bash" and not any(map(os.path.exists, _BASH_COMPLETION)):
        return f"The package bash-completion was not found, which loads it. Install that, or add to ~/.bashrc: . {shlex.quote(str(path))}"
    return f"Open a new {shell}, and press the tab key behind `{PROGRAM} `."


# --- files ----------------------------------------------------------------------------------------------------------


def _is_ours(content: bytes) -> bool:
    return MARK.encode() in content


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _add_line(path: Path, line: str) -> str:
    before = _read(path) or b""
    wanted = line.encode() + b"\n"
    if wanted in before:
        return f"{path} loads it already"
    kept = _without_line(before)
    if kept and not kept.endswith(b"\n"):
        kept += b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, kept + wanted)
    return f"added a line to {path}"


def _without_line(content: bytes) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if not _is_ours(line))


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step, so that it is never half there. A link stays one, a mode stays what it was."""
    path = path.resolve()
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(content)
        if path.exists():
            shutil.copymode(path, new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
