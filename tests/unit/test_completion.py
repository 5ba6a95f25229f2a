"""Shell completion: what is written where, taken away again, and what real shells make of it."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from docs.generate import ROOT
from tests import optional
from tests.waiting import GUARD_S
from toolwire.cli import main
from toolwire.cli.shells import MARK

SCRIPTS = {
    "bash": ".local/share/bash-completion/completions/toolwire",
    "zsh": ".local/share/zsh/site-functions/_toolwire",
    "fish": ".config/fish/completions/toolwire.fish",
}

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything, and a `toolwire` that can be called by its name."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "BASH_COMPLETION_USER_DIR", "ZDOTDIR", "FPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "toolwire"
    command.write_text(f"#!/bin/sh\nexec env PYTHONPATH='{ROOT}' '{sys.executable}' -m toolwire \"$@\"\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def run(home: Path) -> Run:
    return lambda *args, **kwargs: CliRunner().invoke(main, ["completion", *args], prog_name="toolwire", **kwargs)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("shell", SCRIPTS)
def test_what_is_written_is_said_and_taken_away_again(run: Run, home: Path, shell: str) -> None:
    (home / ".zshrc").write_bytes(b"export EDITOR=vi # \xff\r\n")
    (home / ".bashrc").write_bytes(b"true\n")
    before = files(home)
    done = run("install", shell)
    assert done.exit_code == 0, done.output
    assert f"wrote {home / SCRIPTS[shell]}" in done.output
    after = files(home)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == ({SCRIPTS[shell], ".zshrc"} if shell == "zsh" else {SCRIPTS[shell]})
    assert after[SCRIPTS[shell]].decode() == run("show", shell).stdout

    again = run("install", shell)
    assert "is up to date" in again.output
    assert files(home) == after

    (home / SCRIPTS[shell]).write_text(f"{MARK}\nof an earlier version")
    assert "wrote" in run("install", shell).output
    assert files(home) == after

    gone = run("uninstall", shell)
    assert f"removed {home / SCRIPTS[shell]}" in gone.output
    assert files(home) == before
    assert "does not exist" in run("uninstall", shell).output


def test_a_start_file_that_was_made_is_taken_away_with_its_line(run: Run, home: Path) -> None:
    run("install", "zsh")
    assert (home / ".zshrc").read_text().count(MARK) == 1
    run("uninstall", "zsh")
    assert files(home) == {}


def test_an_outdated_line_is_replaced_and_a_link_stays_one(run: Run, home: Path) -> None:
    (home / "dotfiles").mkdir()
    real = home / "dotfiles" / "zshrc"
    real.write_text(f"one\nold {MARK}\ntwo")
    real.chmod(0o600)
    (home / ".zshrc").symlink_to(real)
    assert run("install", "zsh").exit_code == 0
    assert (home / ".zshrc").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o600
    first, second, third = real.read_text().splitlines()
    assert (first, second) == ("one", "two")
    assert third.startswith("fpath=(")


def test_what_is_of_somebody_else_is_left_alone(run: Run, home: Path) -> None:
    path = home / SCRIPTS["fish"]
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    done = run("install", "fish")
    assert (done.exit_code, path.read_text()) == (1, "mine")
    assert "move it away" in done.output
    assert "was not changed" in run("uninstall", "fish").output
    assert path.read_text() == "mine"


def test_what_cannot_be_written_is_said(run: Run, home: Path) -> None:
    (home / ".config").write_text("a file")
    done = run("install", "fish")
    assert done.exit_code == 1
    assert f"Error: cannot write {home / '.config'}" in done.output


def test_the_shell_is_that_of_the_user(run: Run, home: Path) -> None:
    assert "#compdef toolwire" in run("show", env={"SHELL": "/usr/bin/zsh"}).output
    for unknown in ("", "/bin/tcsh"):
        done = run("install", env={"SHELL": unknown})
        assert done.exit_code == 2
        assert "name the shell" in done.output
    assert files(home) == {}


@pytest.mark.parametrize(
    ("shell", "name"), [("bash", "XDG_DATA_HOME"), ("zsh", "XDG_DATA_HOME"), ("fish", "XDG_CONFIG_HOME")]
)
def test_folders_are_those_that_the_user_has_chosen(run: Run, home: Path, shell: str, name: str) -> None:
    assert run("install", shell, env={name: "relative", "ZDOTDIR": str(home / "z")}).exit_code == 0
    assert SCRIPTS[shell] in files(home)
    assert run("install", shell, env={name: str(home / "chosen"), "ZDOTDIR": str(home / "z")}).exit_code == 0
    assert any(path.startswith("chosen/") for path in files(home))
    assert ("z/.zshrc" in files(home)) == (shell == "zsh")


# --- real shells ----------------------------------------------------------------------------------------------------


class Terminal:
    """A shell at a terminal."""

    def __init__(self, *command: str, cwd: Path) -> None:
        master, slave = os.openpty()
        self._file = master
        self._shown = b""
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, start_new_session=True,
            env={**os.environ, "TERM": "dumb", "PS1": "ready> ", "PROMPT": "ready> "},
        )  # fmt: skip
        os.close(slave)

    def type(self, text: str) -> None:
        os.write(self._file, text.encode())

    def until(self, pattern: str) -> str:
        """What was shown up to a match of this."""
        end = time.monotonic() + GUARD_S
        while not (found := re.search(pattern.encode(), self._shown)):
            if not select.select([self._file], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"{pattern!r} is not in {self._shown!r}")
            self._shown += os.read(self._file, 65536)
        shown, self._shown = self._shown[: found.end()], self._shown[found.end() :]
        return shown.decode(errors="replace")

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._file)


CASES = (("toolwire chec\t", r"toolwire check "), ("toolwire check a-long-na\t", r"check a-long-name.yaml "))
"""A command and a file. The program completes values and options as it completes commands."""


def completes(shell: Terminal) -> None:
    shell.until("ready> ")
    for typed, whole in CASES:
        shell.type(typed)
        shell.until(whole)
        shell.type("\x15")  # the line is thrown away
        shell.type("\recho done\r")
        shell.until("\r?\ndone")
        shell.until("ready> ")


@pytest.mark.needs(optional.BASH_COMPLETION)
def test_bash_completes(run: Run, home: Path) -> None:
    bash = optional.program(optional.BASH)
    (home / "a-long-name.yaml").touch()
    (home / "rc").write_text(f"PS1='ready> '; bind 'set bell-style none'; . {optional.BASH_COMPLETION_FILE}\n")
    assert run("install", "bash").exit_code == 0
    with Terminal(bash, "--noprofile", "--rcfile", str(home / "rc"), "-i", cwd=home) as shell:
        completes(shell)


@pytest.mark.parametrize("before", ["", "autoload -Uz compinit && compinit -i\n"], ids=["alone", "behind compinit"])
def test_zsh_completes(run: Run, home: Path, before: str, monkeypatch: pytest.MonkeyPatch) -> None:
    zsh = optional.program(optional.ZSH)
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "a folder's name"))
    (home / "a-long-name.yaml").touch()
    (home / ".zshrc").write_text("PROMPT='ready> '; unsetopt zle_bracketed_paste beep prompt_sp\n" + before)
    assert run("install", "zsh").exit_code == 0
    with Terminal(zsh, "-i", cwd=home) as shell:
        completes(shell)


@pytest.mark.parametrize(
    ("typed", "whole"),
    [("serve --format herm", "hermes"), ("replay --chunks tok", "tokens"), ("check a-long-na", "a-long-name.yaml")],
)
def test_fish_completes(run: Run, home: Path, typed: str, whole: str) -> None:
    fish = optional.program(optional.FISH)
    (home / "a-long-name.yaml").touch()
    assert run("install", "fish").exit_code == 0
    command = [fish, "-c", f"complete -C 'toolwire {typed}'"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GUARD_S, check=True)
    assert whole in [line.split("\t")[0] for line in done.stdout.splitlines()]
