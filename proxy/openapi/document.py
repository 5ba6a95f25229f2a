"""The OpenAPI document of an application, made from its routes.

Rules of this module:

1. The document lists exactly the paths that the application serves, because it is made from its routes. A part
   (`toolwire.openapi.parts`) only describes paths. A path without a description, such as that of a plug-in, is listed
   too.
2. A path that is served with and without `/v1` is listed with `/v1`; a path that the configuration names
   (`server.pass_through`) is listed as it is written there.
3. Errors come from the table of codes (`toolwire.errors`), with the status that the protocol gives them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from .._version import __version__
from ..errors import CODES, GatewayError
from ..pipeline.exchange.response_head import TOKENIZER, USAGE_SOURCE
from ..protocols.base import Allowance, ClientSide, owns
from ..protocols.proxied.protocol import VERSION, ProxiedProtocol
from ..protocols.shared.openai import TIME_HEADER
from ..upstream.servers.client_ids import HEADER as CLIENT_ID
from .parts import OWN, OWN_WORDS, SCHEMAS, Json, Part, read_part

UNKNOWN: Final = "This gateway has no description of the request and the answer."
"""Description of a path that no part describes."""

GATEWAY: Final = "gateway"
"""Tag of the paths that belong to no protocol."""
ANY_PATH: Final = frozenset({400, 404, 500, 503})
"""Error statuses of paths that do not ask a model: invalid request, not found, defect, gateway stopping."""
RETRIED: Final = frozenset({429, 503, 529})
"""Error statuses whose answers say when to retry."""
REQUEST_ID: Final = "X-Request-Id"
RETRY: Final = "Retry-After"
RETRY_MS: Final = "retry-after-ms"
_ON_ALL: Final = (REQUEST_ID, CLIENT_ID)
_NAME: Final = {"type": "string", "minLength": 1}
_METHODS: Final = frozenset({"get", "put", "post", "delete", "options", "patch", "trace"})
_IN_PATH: Final = re.compile(r"{(\w+)}")

_WORDS: Final = {
    REQUEST_ID: "Names the exchange in logs. The client's own, if it sent one, else made here.",
    RETRY: "Seconds to wait before a retry.",
    RETRY_MS: "The same in milliseconds, where the exact time is known.",
    CLIENT_ID: "The client's own id of the request: printable ASCII, at most 512 characters. Returned, logged and forwarded.",
    TIME_HEADER: "Milliseconds from receiving the request to sending the head of the answer.",
    USAGE_SOURCE: "Who counted the tokens: `backend` or `estimate`.",
    TOKENIZER: "Source of the token counts: `backend`, the name of an encoding, or `bytes`.",
}


@dataclass(frozen=True, slots=True)
class ServedPath:
    """One method of one path. `path` is a template, as aiohttp's `canonical`."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class ApiSurface:
    """Facts from which the document is made. `prefix` stands before all paths, for an application mounted in another
    one. `keyed`: requests need a key; `limited`: usage is limited."""

    endpoints: Sequence[ServedPath]
    sides: Sequence[ClientSide]
    proxied: Sequence[ProxiedProtocol] = ()
    prefix: str = ""
    keyed: bool = False
    limited: bool = False


def document(served: ApiSurface) -> Json:
    """Returns the document, an OpenAPI 3.1 object."""
    return _Document(served).whole()


class _Speaker:
    """A protocol and its part of the document."""

    def __init__(self, side: ClientSide) -> None:
        self.side = side
        tag = side.name if side.name.isidentifier() else re.sub(r"\W+", "_", side.name).strip("_")
        if isinstance(side, ProxiedProtocol):
            self.part = Part("passed", ({"name": "passed", "description": "Passed through unchanged."},))
        elif side.api is None:
            self.part = Part(tag, ({"name": tag},))
        else:
            self.part = read_part(side.api, tag)
        self.asks = frozenset({side.path, side.count_path, side.compact_path} - {None})
        """Paths on which a model is asked."""

    @cached_property
    def statuses(self) -> dict[int, list[str]]:
        """Descriptions of error codes, by the status that this protocol gives them. Without the statuses that
        documented operations never answer: 405 (another method), 426 (another protocol), 499 (only logged)."""
        descriptions: dict[int, list[str]] = {}
        for code, row in CODES.items():
            if row.status not in (405, 426, 499):
                status = self.side.status_of(GatewayError("", code=code))
                descriptions.setdefault(status, []).append(f"`{code}`: {row.when}")
        return dict(sorted(descriptions.items()))


class _Document:
    def __init__(self, served: ApiSurface) -> None:
        self._served = served
        self._own = read_part(OWN, GATEWAY)
        self._speakers = [_Speaker(side) for side in served.sides]
        self._proxied = [_Speaker(side) for side in served.proxied]
        self._responses: Json = {}
        self._headers: Json = {}

    def whole(self) -> Json:
        """Returns the document."""
        paths: Json = {}
        tags: dict[str, Json] = {}
        for endpoint in self._documented():
            part, operation = self._operation(endpoint)
            operation["tags"] = [part.tag]
            tags.update((tag["name"], tag) for tag in part.tags)
            paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
        schemas: Json = {}
        for part in (*(speaker.part for speaker in self._speakers), self._own):
            schemas |= part.schemas
        ident = {"name": REQUEST_ID, "in": "header", **_header(_WORDS[REQUEST_ID])}
        client_id = {"name": CLIENT_ID, "in": "header", **_header(_WORDS[CLIENT_ID])}
        components: Json = {
            "schemas": schemas,
            "headers": self._headers,
            "parameters": {"RequestId": ident, "ClientRequestId": client_id},
        }
        components["responses"] = self._responses
        if self._served.keyed:
            components["securitySchemes"] = {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            }
        return {
            "openapi": "3.1.0",
            "info": {
                "title": "toolwire",
                "version": __version__,
                "description": "A gateway that adds exact tool calls to models that write text. This document lists what"
                " this gateway serves as configured. Paths below `/v1` also work without `/v1`. A request that fits"
                " its schema may still be refused for reasons that depend on several fields, the route or the model.",
            },
            "servers": [{"url": self._served.prefix or "/"}],
            **({"security": [{"bearer": []}, {"key": []}]} if self._served.keyed else {}),
            "tags": list(tags.values()),
            "paths": paths,
            "components": components,
        }

    def _documented(self) -> Iterator[ServedPath]:
        """Yields the paths to document, by rule 2, without prefix and private paths."""
        cut = len(self._served.prefix)
        served = [ServedPath(one.method, one.path[cut:]) for one in self._served.endpoints]
        known = {(one.method, one.path) for one in served}
        for one in served:
            if one.method.lower() not in _METHODS or self._is_private(one.path):
                continue
            proxied = next((other.side for other in self._proxied if other.side.path == _below(one.path)), None)
            if isinstance(proxied, ProxiedProtocol):
                hidden = proxied.versioned is not one.path.startswith(VERSION + "/")
            else:
                hidden = (one.method, VERSION + one.path) in known
            if not hidden:
                yield one

    def _is_private(self, path: str) -> bool:
        return any(path.startswith(start) and path != start for start in self._own.private)

    # --- operations -------------------------------------------------------------------------------------------------

    def _operation(self, endpoint: ServedPath) -> tuple[Part, Json]:
        path = _below(endpoint.path)
        speaker = next((one for one in (*self._proxied, *self._speakers) if owns(one.side, path)), None)
        part = self._own if speaker is None else speaker.part
        operation = part.paths.get(path, {}).get(endpoint.method.lower())
        if operation is None:
            operation = self._undescribed(endpoint, speaker)
        operation = deepcopy(operation)
        asks = speaker is not None and endpoint.method == "POST" and path in speaker.asks
        operation["parameters"] = [*self._parameters(endpoint, speaker, asks), *operation.get("parameters", ())]
        if not operation["parameters"]:
            del operation["parameters"]
        responses: Json = operation["responses"]
        for response in responses.values():
            self._complete(response, speaker, asks)
        keyed = self._served.keyed and "security" not in operation  # a part marks the paths that need no key
        for status, error in self._errors(speaker, asks, keyed):
            responses.setdefault(status, {"$ref": f"#/components/responses/{error}"})
        return part, operation

    def _undescribed(self, endpoint: ServedPath, speaker: _Speaker | None) -> Json:
        """Returns the operation of a path that no part describes."""
        ident = re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_")
        path = _below(endpoint.path)
        operation: Json = {
            "operationId": ident,
            "summary": f"{endpoint.method} {endpoint.path}",
            "description": UNKNOWN,
        }
        content: Json = {"application/json": {"schema": {}}}
        if speaker is not None and path in speaker.asks and endpoint.method == "POST":
            request = {"type": "object", "required": ["model"], "properties": {"model": _NAME}}
            body: Json = {"schema": request}
            if speaker.side.example:
                body["example"] = {"model": "NAME", **speaker.side.example}
            operation["requestBody"] = {"required": True, "content": {"application/json": body}}
            content[speaker.side.content_type.partition(";")[0]] = {"schema": {}}
        if speaker is not None and isinstance(speaker.side, ProxiedProtocol):
            operation["description"] = "Request and answer are passed through unchanged."
        operation["responses"] = {"200": {"description": "The answer.", "content": content}}
        return operation

    def _parameters(self, endpoint: ServedPath, speaker: _Speaker | None, asks: bool) -> Iterator[Json]:
        for name in _IN_PATH.findall(endpoint.path):
            yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        if speaker is not None and asks:
            yield {"$ref": "#/components/parameters/RequestId"}
            yield {"$ref": "#/components/parameters/ClientRequestId"}
            side = speaker.side
            for name in dict.fromkeys([side.client_header, *side.field_headers]):
                if name is not None:
                    yield {"name": name, "in": "header", "schema": {"type": "string"}}

    def _complete(self, response: Json, speaker: _Speaker | None, asks: bool) -> None:
        """Adds the headers that every answer has, and the schemas of protocols, to a response."""
        whose = [] if speaker is None else [speaker]
        for content in response.get("content", {}).values():
            form = content["schema"].get(OWN_WORDS)
            if form is not None:
                content["schema"] = _any_of(getattr(one.part, form) for one in self._speakers)
                whose = self._speakers
        names = [*_ON_ALL, *_times(whose)]
        if speaker is not None and asks:
            side = speaker.side
            own = [] if side.id_header is None else [side.id_header]
            counted = [] if isinstance(side, ProxiedProtocol) else [USAGE_SOURCE, TOKENIZER]
            limits = _limit_headers(side) if self._served.limited else []
            names += [*own, *counted, *limits]
        response.setdefault("headers", {}).update(self._named(names))

    # --- errors -----------------------------------------------------------------------------------------------------

    def _errors(self, speaker: _Speaker | None, asks: bool, keyed: bool) -> Iterator[tuple[str, str]]:
        """Yields the statuses of an operation's errors and the names of their responses."""
        speakers = self._anybody() if speaker is None else [speaker]
        proxied = speaker is not None and isinstance(speaker.side, ProxiedProtocol)
        statuses = speakers[0].statuses
        for status in statuses:
            if keyed if status == 401 else asks or status in ANY_PATH:
                text = "; ".join(statuses[status])
                # A request without a key is refused before its protocol is known (`ClientSides.of`).
                words = self._anybody() if proxied and status == 401 else speakers
                yield str(status), self._error(words, str(status), f"{text}.")
        yield "default", self._error(speakers, "", "Any other error.")

    def _anybody(self) -> list[_Speaker]:
        """Returns the protocols whose error form a path outside of all protocols can have: the first protocol, and
        those that clients announce by a header."""
        first, *others = self._speakers
        return [first, *(one for one in others if one.side.client_header is not None)]

    def _error(self, speakers: Sequence[_Speaker], status: str, text: str) -> str:
        """Adds the response for these protocols and this status if it is missing, and returns its name."""
        forms = list(dict.fromkeys(self._form(one) for one in speakers))
        name = f"{'Or'.join(forms)}{status}"
        if name not in self._responses:
            again = (RETRY, RETRY_MS) if status and int(status) in RETRIED else ()
            self._responses[name] = {
                "description": text,
                "headers": self._named([*_ON_ALL, *_times(speakers), *again]),
                "content": {
                    "application/json": {
                        "schema": _any_of(one.part.error or self._proxied_error(one) for one in speakers)
                    }
                },
            }
        return name

    def _named(self, names: Iterable[str]) -> Json:
        """Adds the headers of these names if they are missing, and returns references to them."""
        for name in names:
            self._headers.setdefault(name, _header(_WORDS.get(name)))
        return {name: {"$ref": f"#/components/headers/{name}"} for name in names}

    def _form(self, speaker: _Speaker) -> str:
        return speaker.part.error or self._proxied_error(speaker) or f"{speaker.part.tag.capitalize()}Error"

    def _proxied_error(self, speaker: _Speaker) -> str | None:
        """Returns the error schema of a passed-through protocol: that of the first protocol which writes errors in the
        same form. None if there is none."""
        if not isinstance(speaker.side, ProxiedProtocol):
            return None
        error = GatewayError("", code="not_found")
        mine = speaker.side.write_error(error, "")
        same = (one.part.error for one in self._speakers if one.part.error and one.side.write_error(error, "") == mine)
        return next(same, None)


def _below(path: str) -> str:
    """Returns a path without `/v1`."""
    return path.removeprefix(VERSION) if path.startswith(VERSION + "/") else path


def _any_of(names: Iterable[str | None]) -> Json:
    """Returns a schema that fits any of these named schemas; a None among them means any value."""
    different = list(dict.fromkeys(names))
    if None in different or not different:
        return {}
    if len(different) == 1:
        return {"$ref": f"{SCHEMAS}{different[0]}"}
    return {"anyOf": [{"$ref": f"{SCHEMAS}{name}"} for name in different]}


def _times(speakers: Iterable[_Speaker]) -> list[str]:
    """Returns the headers in which these protocols report the processing time."""
    return list(dict.fromkeys(one.side.time_header for one in speakers if one.side.time_header is not None))


def _limit_headers(side: ClientSide) -> list[str]:
    """Returns the headers in which a protocol reports remaining limits."""
    allowances = [Allowance("requests", 1, 1, 0.0), Allowance("tokens", 1, 1, 0.0)]
    return list(side.write_limits(allowances, time.time()))


def _header(text: str | None) -> Mapping[str, Any]:
    return {**({"description": text} if text else {}), "schema": {"type": "string"}}
