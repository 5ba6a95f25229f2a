"""The protocols in which an application serves clients, and the choice of the one that a request belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .base import ClientSide


def owns(side: ClientSide, place: str) -> bool:
    """True if a path below the base URL belongs to this protocol: its path for requests, one of its additional paths,
    or a path below them."""
    paths = (side.path, *(route.path.partition("/{")[0] for route in side.routes))
    return any(place == path or place.startswith(path + "/") for path in paths)


class ClientSides:
    """The client sides of an application. The first one is used where a client's protocol cannot be told.

    Raises `ValueError` if there is none, or if two have the same name or path.
    """

    def __init__(self, sides: Sequence[ClientSide]) -> None:
        if not sides:
            raise ValueError("there is no protocol to serve clients in")
        for what in ("name", "path"):
            values = [getattr(side, what) for side in sides]
            if len(set(values)) < len(values):
                raise ValueError(f"two client protocols have the same {what}: {', '.join(map(repr, values))}")
        self.sides = tuple(sides)
        self.keeps = any(side.turns is not None and side.path == "/responses" for side in sides)
        """True if answers over Responses are stored."""

    def of(self, path: str, headers: Mapping[str, str]) -> ClientSide:
        """Returns the protocol in which errors are written for a request that no protocol's handler took: by its path,
        by a header of its clients, or else the first protocol."""
        place = path.removeprefix("/v1")
        for side in self.sides:
            if owns(side, place):
                return side
        for side in self.sides:
            if side.client_header is not None and side.client_header in headers:
                return side
        return self.sides[0]
