"""The OpenAPI document of an application, made of its routes.

Rules of this module:

1. What is served is in the document, and nothing else is: it is made from the routes of the application. A part
   (`toolwire.openapi.parts`) only says what a path is about. A path of which no part says anything, as that of a
   plug-in without one, is there all the same.
2. Of a path that is served with `/v1` and without, the one with `/v1` is in the document; of one that the configuration
   names (`server.pass_through`) the one that is written there.
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

from toolwire._version import __version__
from toolwire.errors import CODES, GatewayError
from toolwire.openapi.parts import OWN, OWN_WORDS, SCHEMAS, Json, Part, read_part
from toolwire.pipeline.exchange.heads import TOKENIZER, USAGE_SOURCE
from toolwire.protocols.base import Allowance, ClientSide
from toolwire.protocols.shared.openai import TIME_HEADER
from toolwire.protocols.shared.passed import VERSION, PassedProtocol
from toolwire.protocols.sides import owns
from toolwire.upstream.servers.client_ids import HEADER as CLIENT_ID

UNKNOWN: Final = "Nothing more is known here of what is sent and answered."
"""Stands at a path of which no part says anything."""

GATEWAY: Final = "gateway"
"""Whose paths are no protocol's."""
ANY_PATH: Final = frozenset({400, 404, 500, 503})
"""Errors of paths that ask no model: a head that is none, what does not exist, a defect, a gateway that stops."""
RETRIED: Final = frozenset({429, 503, 529})
"""These say when to ask again."""
REQUEST_ID: Final = "X-Request-Id"
RETRY: Final = "Retry-After"
RETRY_MS: Final = "retry-after-ms"
_ON_ALL: Final = (REQUEST_ID, CLIENT_ID)
_NAME: Final = {"type": "string", "minLength": 1}
_METHODS: Final = frozenset({"get", "put", "post", "delete", "options", "patch", "trace"})
_COMPONENTS: Final = ("schemas", "responses", "headers", "parameters")
_IN_PATH: Final = re.compile(r"{(\w+)}")

_WORDS: Final = {
    REQUEST_ID: "Names the exchange in logs. The client's own, if it sent one, else made here.",
    RETRY: "So many seconds are to pass before it is asked again.",
    RETRY_MS: "The same in milliseconds, where it is known so exactly.",
    CLIENT_ID: "What the client calls its request: printable ASCII, at most 512 characters. Given back, logged, and sent on.",
    TIME_HEADER: "Whole milliseconds that the gateway had the request before the answer's head was sent.",
    USAGE_SOURCE: "Who counted the tokens: `backend` or `estimate`.",
    TOKENIZER: "With what they were counted: `backend`, the name of an encoding, or `bytes`.",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A method at a path; `path` is a template, as aiohttp's `canonical`."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Served:
    """What the document depends on. `prefix`: what stands before all paths, in an application inside another one.
    `keyed`: keys are asked for; `limited`: limits are counted."""

    endpoints: Sequence[Endpoint]
    sides: Sequence[ClientSide]
    passed: Sequence[PassedProtocol] = ()
    prefix: str = ""
    keyed: bool = False
    limited: bool = False


def document(served: Served) -> Json:
    """The document, an OpenAPI 3.1 object."""
    return _Document(served).whole()


class _Speaker:
    """A protocol, and what its part says: whose words a path's errors have."""

    def __init__(self, side: ClientSide) -> None:
        self.side = side
        tag = side.name if side.name.isidentifier() else re.sub(r"\W+", "_", side.name).strip("_")
        if isinstance(side, PassedProtocol):
            self.part = Part("passed", ({"name": "passed", "description": "What passes as it is."},))
        elif side.api is None:
            self.part = Part(tag, ({"name": tag},))
        else:
            self.part = read_part(side.api, tag)
        self.asks = frozenset({side.path, side.count_path, side.compact_path} - {None})
        """Where a model is asked."""

    def owns(self, path: str) -> bool:
        """Whether a path below the base URL is this protocol's (`ClientSides.of`)."""
        return owns(self.side, path)

    @cached_property
    def statuses(self) -> dict[int, list[str]]:
        """The codes of errors, by the status that they have here, but for those that no documented operation
        answers: 405 has another method, 426 asks for another protocol, 499 is for logs."""
        found: dict[int, list[str]] = {}
        for code, row in CODES.items():
            if row.status not in (405, 426, 499):
                status = self.side.status_of(GatewayError("", code=code))
                found.setdefault(status, []).append(f"`{code}`: {row.when}")
        return dict(sorted(found.items()))


class _Document:
    def __init__(self, served: Served) -> None:
        self._served = served
        self._own = read_part(OWN, GATEWAY)
        self._speakers = [_Speaker(side) for side in served.sides]
        self._passed = [_Speaker(side) for side in served.passed]
        self._responses: Json = {}
        self._headers: Json = {}

    def whole(self) -> Json:
        """The document."""
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
        components: Json = dict(
            zip(
                _COMPONENTS,
                (schemas, self._responses, self._headers, {"RequestId": ident, "ClientRequestId": client_id}),
                strict=True,
            )
        )
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
                "description": "A gateway that gives exact tool calls in front of models that write text. What is here"
                " is what this gateway serves, as it is configured. Paths below `/v1` also work without it. A request that fits"
                " its schema may still be refused: for what depends on several fields, on the route or on the model.",
            },
            "servers": [{"url": self._served.prefix or "/"}],
            **({"security": [{"bearer": []}, {"key": []}]} if self._served.keyed else {}),
            "tags": list(tags.values()),
            "paths": paths,
            "components": components,
        }

    def _documented(self) -> Iterator[Endpoint]:
        """What is served, by rule 2, without prefix and private paths."""
        cut = len(self._served.prefix)
        served = [Endpoint(one.method, one.path[cut:]) for one in self._served.endpoints]
        known = {(one.method, one.path) for one in served}
        for one in served:
            if one.method.lower() not in _METHODS or self._is_private(one.path):
                continue
            passed = next((other.side for other in self._passed if other.side.path == _below(one.path)), None)
            if isinstance(passed, PassedProtocol):
                hidden = passed.versioned is not one.path.startswith(VERSION + "/")
            else:
                hidden = (one.method, VERSION + one.path) in known
            if not hidden:
                yield one

    def _is_private(self, path: str) -> bool:
        return any(path.startswith(start) and path != start for start in self._own.private)

    # --- operations -------------------------------------------------------------------------------------------------

    def _operation(self, endpoint: Endpoint) -> tuple[Part, Json]:
        path = _below(endpoint.path)
        speaker = next((one for one in (*self._passed, *self._speakers) if one.owns(path)), None)
        part = self._own if speaker is None else speaker.part
        said = part.paths.get(path, {}).get(endpoint.method.lower())
        if said is None:
            said = self._unsaid(endpoint, speaker)
        operation = deepcopy(said)
        asks = speaker is not None and endpoint.method == "POST" and path in speaker.asks
        operation["parameters"] = [*self._parameters(endpoint, speaker, asks), *operation.get("parameters", ())]
        if not operation["parameters"]:
            del operation["parameters"]
        responses: Json = operation["responses"]
        for response in responses.values():
            self._complete(response, speaker, asks)
        keyed = self._served.keyed and "security" not in operation  # a part says what is open
        for status, error in self._errors(speaker, asks, keyed):
            responses.setdefault(status, {"$ref": f"#/components/responses/{error}"})
        return part, operation

    def _unsaid(self, endpoint: Endpoint, speaker: _Speaker | None) -> Json:
        """An operation of which no part says anything."""
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
        if speaker is not None and isinstance(speaker.side, PassedProtocol):
            operation["description"] = "Passes to the model server as it is, and so does the answer."
        operation["responses"] = {"200": {"description": "The answer.", "content": content}}
        return operation

    def _parameters(self, endpoint: Endpoint, speaker: _Speaker | None, asks: bool) -> Iterator[Json]:
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
        """Add what every answer has, and the forms of protocols."""
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
            counted = [] if isinstance(side, PassedProtocol) else [USAGE_SOURCE, TOKENIZER]
            limits = _limit_headers(side) if self._served.limited else []
            names += [*own, *counted, *limits]
        response.setdefault("headers", {}).update(self._named(names))

    # --- errors -----------------------------------------------------------------------------------------------------

    def _errors(self, speaker: _Speaker | None, asks: bool, keyed: bool) -> Iterator[tuple[str, str]]:
        """Statuses, and the names of the responses that they have."""
        speakers = self._anybody() if speaker is None else [speaker]
        passed = speaker is not None and isinstance(speaker.side, PassedProtocol)
        statuses = speakers[0].statuses
        for status in statuses:
            if keyed if status == 401 else asks or status in ANY_PATH:
                text = "; ".join(statuses[status])
                # Who has no key is told so before anything is known of what passes (`ClientSides.of`).
                words = self._anybody() if passed and status == 401 else speakers
                yield str(status), self._error(words, str(status), f"{text}.")
        yield "default", self._error(speakers, "", "Any other error.")

    def _anybody(self) -> list[_Speaker]:
        """Whose words an error has at a path that is no protocol's: the first one's, and of those who can be told by a
        header."""
        first, *others = self._speakers
        return [first, *(one for one in others if one.side.client_header is not None)]

    def _error(self, speakers: Sequence[_Speaker], status: str, text: str) -> str:
        """The name of a response, which is there."""
        forms = list(dict.fromkeys(self._form(one) for one in speakers))
        name = f"{'Or'.join(forms)}{status}"
        if name not in self._responses:
            again = (RETRY, RETRY_MS) if status and int(status) in RETRIED else ()
            self._responses[name] = {
                "description": text,
                "headers": self._named([*_ON_ALL, *_times(speakers), *again]),
                "content": {
                    "application/json": {"schema": _any_of(one.part.error or self._told(one) for one in speakers)}
                },
            }
        return name

    def _named(self, names: Iterable[str]) -> Json:
        """The headers of these names, which are there."""
        for name in names:
            self._headers.setdefault(name, _header(_WORDS.get(name)))
        return {name: {"$ref": f"#/components/headers/{name}"} for name in names}

    def _form(self, speaker: _Speaker) -> str:
        return speaker.part.error or self._told(speaker) or f"{speaker.part.tag.capitalize()}Error"

    def _told(self, speaker: _Speaker) -> str | None:
        """The form of what passes: OpenAI's, as that of the first protocol here that has it."""
        if not isinstance(speaker.side, PassedProtocol):
            return None
        error = GatewayError("", code="not_found")
        mine = speaker.side.write_error(error, "")
        same = (one.part.error for one in self._speakers if one.part.error and one.side.write_error(error, "") == mine)
        return next(same, None)


def _below(path: str) -> str:
    """A path below the base URL."""
    return path.removeprefix(VERSION) if path.startswith(VERSION + "/") else path


def _any_of(names: Iterable[str | None]) -> Json:
    """One of these schemas; None: anything."""
    different = list(dict.fromkeys(names))
    if None in different or not different:
        return {}
    if len(different) == 1:
        return {"$ref": f"{SCHEMAS}{different[0]}"}
    return {"anyOf": [{"$ref": f"{SCHEMAS}{name}"} for name in different]}


def _times(speakers: Iterable[_Speaker]) -> list[str]:
    """The headers in which they say how long it took."""
    return list(dict.fromkeys(one.side.time_header for one in speakers if one.side.time_header is not None))


def _limit_headers(side: ClientSide) -> list[str]:
    """In which headers a protocol says what is left."""
    allowances = [Allowance("requests", 1, 1, 0.0), Allowance("tokens", 1, 1, 0.0)]
    return list(side.write_limits(allowances, time.time()))


def _header(text: str | None) -> Mapping[str, Any]:
    return {**({"description": text} if text else {}), "schema": {"type": "string"}}
