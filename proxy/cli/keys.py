"""The command `toolwire keys`."""

from __future__ import annotations

import click

from .common import say


@click.group("keys")
def command() -> None:
    """Create keys for clients."""


@command.command("new")
def new_() -> None:
    """Print a new client key, and its hash for the configuration."""
    from ..ingress.auth import hash_key, new_key

    key = new_key()
    say(key)
    say(hash_key(key))


@command.command("hash")
def hash_() -> None:
    """Print the hash of a key, for `auth.keys` or the key file. The key is read from standard input and not shown."""
    from ..ingress.auth import hash_key

    with click.open_file("-") as piped:
        key = click.prompt("Key", hide_input=True, err=True) if piped.isatty() else piped.readline().strip()
    if not key:
        raise click.ClickException("there is no key on standard input")
    say(hash_key(key))
