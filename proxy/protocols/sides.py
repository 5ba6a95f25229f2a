"""The protocols in which an application serves clients, and which of them a request belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolwire.protocols.base import ClientSide


def owns(side: ClientSide, place: str) -> bool:
    """Whether a path below the base URL is this protocol's: where requests are posted, one of its further paths, or
    something below one of them."""
    paths = (side.path, *(route.path.partition("/{")[0] for route in side.routes))
    return any(place == path or place.startswith(path + "/") for path in paths)


class ClientSides:
    """The client sides of an application. The first one's words are for who cannot be told apart.

    Raises `ValueError` if there is none, or if two have one name or one path.
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
        """Answers over Responses are kept."""

    def of(self, path: str, headers: Mapping[str, str]) -> ClientSide:
        """Whose words a request at `path` is answered in that no protocol's handler has taken on."""
        place = path.removeprefix("/v1")
        for side in self.sides:
            if owns(side, place):
                return side
        for side in self.sides:
            if side.client_header is not None and side.client_header in headers:
                return side
        return self.sides[0]
