"""What the gateway and a host say to each other: JSON objects, each behind its length in four bytes.

| to the host | |
| --- | --- |
| `settings` | the first frame: how to reach the server (`HostSettings`) |
| `call` with `name`, `arguments` | a call, by a number; `arguments` is JSON text, an object |
| `cancel` | the call of that number is given up |

| from the host | |
| --- | --- |
| `ready` | the server answers: `server`, `version`, `protocol` |
| `tools` | what it lists, of what is allowed: as MCP has it; `left_out`: `name` and `why` of what is not told |
| `result` with `parts`, `failed` | of the call of that number; every call has one, also one given up |
| `log` | a line that the server wrote to its standard error |
| `lost` | why the connection is no good, the last thing that is said |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

HEAD: Final = struct.Struct("!I")

MAX_FRAME_BYTES: Final = 32 * 1024 * 1024
"""What either side takes at most. A host cuts what it says to less."""

MAX_TOOLS: Final = 256
MAX_LISTING_BYTES: Final = 1024 * 1024
"""Of the tools of one server together, with their schemas."""
MAX_IMAGE_BYTES: Final = 8 * 1024 * 1024
"""Of the images of one result together, in base64."""

Frame = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings:
    """What a host is told of its server. `argv` and `env` of a process, or `url` and `headers`. `handshake`: the old
    way of connecting only. `allow` and `deny` say which tools are told of (`names.is_allowed`). `secrets` are hidden
    wherever the server says them. Results have at most `max_result_chars`; with `refuse_oversize` a longer one is an
    error, else it is cut."""

    argv: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    trust_env: bool = False
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    handshake: bool = False
    secrets: tuple[str, ...] = ()
    max_result_chars: int = 1000
    refuse_oversize: bool = False
