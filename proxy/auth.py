"""Who may use the gateway (R17.8): bearer keys, kept as hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from .config import AuthConfig
from .errors import ClientFault

_PREFIX = "sha256:"


class Keys:
    """The keys that are accepted. Empty means that everybody is."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest_of_entry(key) for key in keys)

    @classmethod
    def load(cls, config: AuthConfig) -> Keys:
        """The keys of the configuration and of its key file. Raises `OSError` or `ValueError`."""
        keys = [key for key in config.keys if key]
        if config.keys_file is not None:
            for line in Path(config.keys_file).read_text("utf-8").splitlines():
                entry = line.split("#", 1)[0].strip()
                if entry:
                    keys.append(entry)
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def check(self, authorization: str | None, api_key: str | None) -> str:
        """Take `Authorization: Bearer KEY` or `x-api-key: KEY` and say whose it is: a hash, empty if no key is needed.

        Raises `ClientFault` `invalid_api_key`.
        """
        if not self._digests:
            return ""
        presented = api_key
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            if scheme.lower() == "bearer":
                presented = token.strip()
        if not presented:
            raise ClientFault(
                "You did not provide an API key.", code="invalid_api_key", hint="Send `Authorization: Bearer YOUR_KEY`."
            )
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        # All keys are compared, so that the time taken does not tell which one came close.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        if not any(matches):
            raise ClientFault("Incorrect API key provided.", code="invalid_api_key")
        return digest.hex()


def _digest_of_entry(entry: str) -> bytes:
    if not entry.startswith(_PREFIX):
        return hashlib.sha256(entry.encode()).digest()
    try:
        digest = bytes.fromhex(entry.removeprefix(_PREFIX))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ValueError("a key that starts with 'sha256:' must go on with 64 hexadecimal digits")
    return digest
