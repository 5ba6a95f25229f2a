"""API keys: their hashes, and what each key may do (R17.8)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final

import orjson

from ..config import AuthConfig, KeyConfig, RateLimitConfig
from ..errors import ClientFault, quote
from ..support.conversion import ConfigError, ConversionRules, from_mapping
from ..support.plainyaml import parse_yaml

_PREFIX: Final = "sha256:"
_STRUCTURED: Final = frozenset({".yaml", ".yml", ".json"})


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An accepted API key.

    `owner`: its hash, 64 hex digits. `routes`: the routes it may use, by their `model`; None for all. `admin`: it may
    read captures of other keys' requests.
    """

    owner: str
    name: str | None
    limit: RateLimitConfig
    routes: frozenset[str] | None
    admin: bool = False

    def may_use(self, route: str) -> bool:
        """True if the key may use the route with this `model`."""
        return self.routes is None or route in self.routes

    def require(self, route: str, model: str) -> None:
        """Raises `ClientFault` `model_not_allowed` if the key may not use the route. `model` is the requested name."""
        if not self.may_use(route):
            raise ClientFault(
                f"This API key may not use the model {quote(model)}.", code="model_not_allowed", param="model"
            )


class Keys:
    """The accepted keys. Without any, requests need no key."""

    def __init__(self, keys: Iterable[KeyConfig]) -> None:
        self._by_digest: dict[bytes, ApiKey] = {}
        for entry in keys:
            digest = _digest_of_entry(entry.key)
            if digest in self._by_digest:
                raise ValueError(f"the same key is listed twice{f' ({quote(entry.name)})' if entry.name else ''}")
            limit = RateLimitConfig(**{f.name: getattr(entry, f.name) for f in fields(RateLimitConfig)})
            routes = None if entry.routes is None else frozenset(entry.routes)
            self._by_digest[digest] = ApiKey(digest.hex(), entry.name, limit, routes, entry.admin)

    @classmethod
    def load(cls, config: AuthConfig) -> Keys:
        """Returns the keys of the configuration and of its key file. Raises `OSError`, `ValueError` or
        `ConfigError`."""
        keys = [key for key in config.keys if key.key]
        if config.keys_file is not None:
            keys += read_keys(Path(config.keys_file))
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._by_digest.values())

    def check(self, authorization: str | None, api_key: str | None) -> ApiKey | None:
        """Returns the key of a request, or None if no key is needed. Raises `ClientFault` `invalid_api_key`.

        The key is taken from `Authorization: Bearer KEY` or `x-api-key: KEY`. If both are present the bearer token
        counts: Anthropic's SDK sends both if it has both, and the bearer token is the one meant for a gateway.
        """
        if not self._by_digest:
            return None
        presented = api_key
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer":
                presented = token.strip()
        if not presented:
            raise ClientFault(
                "You did not provide an API key.", code="invalid_api_key", hint="Send `Authorization: Bearer YOUR_KEY`."
            )
        # The lookup time reveals nothing useful about a key: SHA-256 digests are compared, so an attacker who learned
        # how far a digest matches would still need a key with that digest. Python's hash of the digest is seeded anew
        # in each process.
        key = self._by_digest.get(_digest(presented))
        if key is None:
            raise ClientFault("Incorrect API key provided.", code="invalid_api_key")
        return key


def owner_of(key: str) -> str:
    """Returns the `ApiKey.owner` of a key; empty if the key is malformed."""
    try:
        return _digest_of_entry(key).hex()
    except ValueError:
        return ""


def key_mistakes(keys: Iterable[KeyConfig]) -> Iterator[str]:
    """Yields one line for each mistake in keys. The lines contain no keys."""
    seen: set[bytes] = set()
    for entry in keys:
        named = f" ({quote(entry.name)})" if entry.name else ""
        try:
            digest = _digest_of_entry(entry.key)
        except ValueError as error:
            yield f"auth: {error}{named}"
            continue
        if entry.key and digest in seen:
            yield f"auth: the same key is listed twice{named}"
        seen.add(digest)


def hash_key(key: str) -> str:
    """Returns the form in which a key should be stored: `sha256:` and 64 hexadecimal digits."""
    return _PREFIX + _digest(key).hex()


def new_key() -> str:
    """Returns a new random key of 256 bits."""
    return f"tw-{os.urandom(32).hex()}"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _digest_of_entry(entry: str) -> bytes:
    entry = entry.strip()  # a secret in a variable often ends with a line end, which no header can carry
    if not entry.startswith(_PREFIX):
        return _digest(entry)
    try:
        digest = bytes.fromhex(entry.removeprefix(_PREFIX))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ValueError("a key that starts with 'sha256:' must go on with 64 hexadecimal digits")
    return digest


def read_keys(path: Path) -> list[KeyConfig]:
    """Returns the keys in a key file. Raises `OSError`, `ValueError` or `ConfigError`."""
    text = path.read_text("utf-8")
    if path.suffix.lower() not in _STRUCTURED:
        entries = (line.split("#", 1)[0].strip() for line in text.splitlines())
        return [KeyConfig(key=entry) for entry in entries if entry]
    try:
        # A YAML parser would read JSON too, but take seconds for ten thousand keys.
        tree = orjson.loads(text) if path.suffix.lower() == ".json" else parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None  # `from None`: the original error contains the text
    if not isinstance(tree, dict):
        tree = {"keys": tree}  # the file may be only the list
    if extra := sorted(map(str, tree.keys() - {"keys"})):
        raise ConfigError(f"{path.name}: unknown key {extra[0]!r}; the file holds a list, or a mapping with `keys`")
    read = from_mapping(AuthConfig, tree, path.name, ConversionRules(shorthand={KeyConfig: "key"}))
    problems = [
        f"{path.name}: keys[{index}].{f.name}: expected at least 0"
        for index, key in enumerate(read.keys)
        for f in fields(RateLimitConfig)
        if (getattr(key, f.name) or 0) < 0
    ]
    if problems:
        raise ConfigError(*problems)
    return [key for key in read.keys if key.key]
