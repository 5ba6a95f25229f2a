"""The messages between the gateway and a host: JSON objects, each preceded by its length in four bytes.

| to the host | |
| --- | --- |
| `settings` | the first frame: how to reach the server (`HostSettings`) |
| `call` with `name`, `arguments` | a call and its number; `arguments` is the JSON text of an object |
| `cancel` | cancels the call of this number |

| from the host | |
| --- | --- |
| `ready` | the server has answered: `server`, `version`, `protocol` |
| `tools` | its allowed tools, as MCP lists them; `left_out`: `name` and `why` of tools that cannot be used |
| `result` with `parts`, `failed` | the result of the call of this number; every call gets one, also a cancelled one |
| `result` with `forgotten` too | the server has forgotten the session, so it did not run the call; `lost` follows |
| `log` | a line of the server's standard error |
| `lost` | why the connection has failed; always the last frame |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

HEAD: Final = struct.Struct("!I")

MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
"""The largest frame that either side accepts. A host keeps its own frames smaller."""

MAX_TOOLS: Final = 256
MAX_LISTING_BYTES: Final = 1024 * 1024
"""Maximum size of all tools of one server together, with their schemas."""
MAX_IMAGE_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of all images of one result together, in base64."""

Frame = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """The settings of a host for its server: `argv` and `env` of a process, or `url` and `headers`; `permitted` are the
    only URLs that redirects may lead to, if there are any. `handshake`: use only the older way of connecting. `allow`
    and `deny` select the tools (`is_allowed`). `secrets` are hidden in everything the server sends. A result longer
    than `max_result_chars` is cut, or with `refuse_oversize` becomes an error."""

    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    trust_env: bool = False
    permitted: tuple[str, ...] = ()
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    handshake: bool = False
    secrets: tuple[str, ...] = ()
    max_result_chars: int = 1000
    refuse_oversize: bool = False
