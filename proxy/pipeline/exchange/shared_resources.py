"""Resources that outlive a configuration. An application hands them to its successor (`toolwire.server.hosting`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiohttp import web

T = TypeVar("T")


@dataclass(slots=True)
class _SharedResource:
    settings: object
    value: Any
    close: Callable[[Any], Awaitable[None]] | None
    users: int = 0


class SharedResources:
    """The lasting resources of one application. `before` are those of its predecessor.

    A resource is passed to the successor, and closed when the last application that uses it ends.
    """

    def __init__(self, before: SharedResources | None = None) -> None:
        self._before = {} if before is None else before._taken
        self._taken: dict[web.AppKey[Any], _SharedResource] = {}

    def take(
        self,
        key: web.AppKey[T],
        settings: object,
        make: Callable[[], T],
        close: Callable[[T], Awaitable[None]] | None = None,
    ) -> T:
        """Returns the predecessor's value under `key` if it was made for equal `settings`, else a new value from
        `make`. `close` is called at its end."""
        resource = self._taken.get(key) or self._before.get(key)
        if resource is None or resource.settings != settings:
            resource = _SharedResource(settings, make(), close)
        self._taken[key] = resource
        value: T = resource.value
        return value

    async def running(self, app: web.Application) -> AsyncIterator[None]:
        """For `app.cleanup_ctx`: holds the taken resources while the application runs."""
        self._before = {}
        for resource in self._taken.values():
            resource.users += 1
        yield
        for resource in self._taken.values():
            resource.users -= 1
            if not resource.users and resource.close is not None:
                await resource.close(resource.value)


SHARED: Final = web.AppKey("toolwire.shared_resources", SharedResources)
