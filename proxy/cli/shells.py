"""Installs and removes shell completions.

Rules:

1. Written files and lines carry a mark. A file without it belongs to the user, and is neither overwritten nor removed.
2. In a start file of the user only the marked line is changed; all other bytes stay the same.
3. Installing twice gives the same result as once; an outdated script is replaced.

The scripts are click's. Sources for the paths: bash-completion's README (`BASH_COMPLETION_USER_DIR`), "Completion
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
"""Files that load bash's completions on demand."""


_LOADED_FIRST: Final = "[[ $zsh_eval_context[-1] == loadautofunc ]]"
_CALLED: Final = f"[[ $funcstack[1] == _{PROGRAM} ]]"
"""click's script for zsh uses the first test to find out whether it is called as a function. It holds at the first call
only, so the second press of the tab key would do nothing. The second test holds at every call."""


@dataclass(frozen=True, slots=True)
class CompletionPaths:
    """Path of the completion script. If a start file has to load it: that file, and the line for it."""

    script: Path
    start_file: Path | None = None
    line: str = ""


def shell_of(env: Mapping[str, str]) -> str | None:
    """Returns the user's shell, from `SHELL`; None if it is not supported."""
    name = Path(env.get("SHELL", "")).name.removesuffix(".exe")
    return name if name in PLACES else None


def script(shell: str, main: click.Command) -> str:
    """Returns the completion script of a shell for the command line `main`."""
    kind = get_completion_class(shell)
    assert kind is not None
    source = kind(main, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    first, _, rest = source.replace(_LOADED_FIRST, _CALLED).partition("\n")
    # zsh requires `#compdef` in the first line.
    lines = (first, MARK, rest) if first.startswith("#") else (MARK, first, rest)
    return "\n".join(lines)


def install(shell: str, main: click.Command, env: Mapping[str, str]) -> Iterator[str]:
    """Writes the script, and a line in the start file if needed. Yields messages for the user, the last one with the
    next step. Raises `OSError`, and `FileExistsError` for a file that `install` did not write."""
    place = PLACES[shell](env)
    text = script(shell, main).encode()
    there = _read(place.script)
    if there is not None and not _is_ours(there):
        raise FileExistsError(f"{place.script} exists and was not written by toolwire: move it away first")
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
    """Removes what `install` has written. Yields messages for the user. Raises `OSError`."""
    place = PLACES[shell](env)
    there = _read(place.script)
    if there is None:
        yield f"{place.script} does not exist"
    elif not _is_ours(there):
        yield f"{place.script} was not written by toolwire, and was not changed"
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


def _bash(env: Mapping[str, str]) -> CompletionPaths:
    own = env.get("BASH_COMPLETION_USER_DIR")
    folder = Path(own) if own else _xdg(env, "XDG_DATA_HOME", ".local/share") / "bash-completion"
    return CompletionPaths(folder / "completions" / PROGRAM)


def _zsh(env: Mapping[str, str]) -> CompletionPaths:
    folder = _xdg(env, "XDG_DATA_HOME", ".local/share") / "zsh" / "site-functions"
    start_file = Path(env.get("ZDOTDIR") or _home(env)) / ".zshrc"
    # Works if the completion system is started before this line, after it, or not at all.
    line = (
        f"fpath=({shlex.quote(str(folder))} $fpath); if (( $+functions[compdef] )); then autoload -Uz _{PROGRAM} && compdef"
        f" _{PROGRAM} {PROGRAM}; else autoload -Uz compinit && compinit -i; fi {MARK}"
    )
    return CompletionPaths(folder / f"_{PROGRAM}", start_file, line)


def _fish(env: Mapping[str, str]) -> CompletionPaths:
    return CompletionPaths(_xdg(env, "XDG_CONFIG_HOME", ".config") / "fish" / "completions" / f"{PROGRAM}.fish")


PLACES: Final = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""The supported shells, and the paths of their completion scripts."""


def _home(env: Mapping[str, str]) -> Path:
    return Path(env["HOME"]) if env.get("HOME") else Path.home()


def _xdg(env: Mapping[str, str], name: str, usual: str) -> Path:
    """Returns a folder of the XDG Base Directory Specification. The specification says that relative paths are
    ignored."""
    given = Path(env.get(name, ""))
    return given if given.is_absolute() else _home(env) / usual


def _next_step(shell: str, path: Path, env: Mapping[str, str]) -> str:
    if shell == "bash" and not any(map(os.path.exists, _BASH_COMPLETION)):
        return f"The package bash-completion, which loads the script, was not found. Install it, or add to ~/.bashrc: . {shlex.quote(str(path))}"
    return f"Open a new {shell}, and press the tab key after `{PROGRAM} `."


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
        return f"{path} already loads it"
    content = _without_line(before)
    if content and not content.endswith(b"\n"):
        content += b"\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace(path, content + wanted)
    return f"added a line to {path}"


def _without_line(content: bytes) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if not _is_ours(line))


def _replace(path: Path, content: bytes) -> None:
    """Replaces the content of a file in one step, so that no reader sees half of it. Keeps a symbolic link and the file
    mode."""
    path = path.resolve()
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        new.write_bytes(content)
        if path.exists():
            shutil.copymode(path, new)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
