"""The suite: a table of situations, and one run of them through a gateway in front of an engine.

A situation asserts what the gateway promises, never what a model says: a call whole and on offer or a named error, the
end of the answer, its usage, a refusal with its status and code. What the tap saw tells mistakes of the engine apart.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson

from tests.e2e.processes import Process, running
from tests.engines.asking import PATHS, Ask, Seen, read, wrong_call
from tests.engines.tap import Tap, Tapped
from toolwire.testing import WireAnswer

PATIENCE_S: Final = 600.0
"""The longest that a situation may take. Engines on a busy machine write two tokens a second."""
RESTART_S: Final = 2400.0
"""The same of a situation that waits for an engine's start."""

MODES: Final = ("native", "prompt", "template", "auto")
WAYS: Final = ("whole", "streamed")


class Broken(Exception):
    """The gateway broke a promise."""


class EngineBroken(Exception):
    """The engine gave what no gateway can make right, and the client was told so."""


class Missing(Exception):
    """A situation that this engine does not have; the text says what is missing."""


def expect(holds: object, promise: str) -> None:
    """Raises `Broken` unless a promise holds."""
    if not holds:
        raise Broken(promise)


@dataclass(frozen=True, slots=True)
class Situation:
    """`name` is its id in the results; `title` stands on the page."""

    name: str
    title: str
    play: Callable[[Run], Awaitable[str]]

    @property
    def group(self) -> str:
        """The heading under which it stands."""
        return self.name.partition("/")[0]


SITUATIONS: Final[dict[str, Situation]] = {}
"""Every situation by its name, in the order in which they are played."""


def situation(name: str, title: str, **axes: Sequence[str]) -> Callable[[Callable[..., Awaitable[str]]], Any]:
    """Registers a situation, one for each combination of `axes`, whose values stand in `title` as `{axis}`."""

    def register(play: Callable[..., Awaitable[str]]) -> Callable[..., Awaitable[str]]:
        for values in itertools.product(*axes.values()):
            chosen = dict(zip(axes, values, strict=True))
            full = "-".join((name, *values))
            assert full not in SITUATIONS, full

            async def bound(run: Run, chosen: Mapping[str, str] = chosen) -> str:
                return await play(run, **chosen)

            SITUATIONS[full] = Situation(full, title.format(**chosen), bound)
        return play

    return register


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a situation. `gateway`: the promise that it broke. `engine`: mistakes of the engine. `skipped`:
    what is missing."""

    seen: str = ""
    gateway: str | None = None
    engine: tuple[str, ...] = ()
    skipped: str | None = None


@dataclass
class Server:
    """An engine that runs: its address, and how to kill and start it, where the suite may."""

    name: str
    url: str
    model: str
    kill: Callable[[], Awaitable[None]] | None = None
    start: Callable[[], Awaitable[None]] | None = None


def configuration(server: Server, tap: str) -> dict[str, Any]:
    """The gateway's configuration: a route for each mode, through the tap, and routes for what needs others. Nothing
    says which engine it is."""

    def route(name: str, backend: str = "engine", model: str = server.model, **options: Any) -> dict[str, Any]:
        return {"model": name, "backend": backend, "upstream_model": model, "options": options}

    return {
        "backends": {"engine": {"url": tap}, "direct": {"url": server.url}},
        "routes": [
            *(route(mode, mode=mode) for mode in MODES),
            route("free", mode="prompt", decoding={"constrain_auto": "off"}),
            route("binding", mode="prompt", decoding={"constrain": "required"}),
            route("direct", "direct", mode="prompt"),
            route("nowhere", model="a-model-that-nobody-serves", mode="native"),
        ],
        "store": {"kind": "memory"},
    }


@dataclass
class Run:
    """One run of situations over one engine."""

    server: Server
    gateway: Process
    tap: Tap
    mistakes: list[str] = field(default_factory=list)
    _since: int = 0
    _words: str = ""

    @property
    def tapped(self) -> list[Tapped]:
        """What the engine was asked for in this situation, without what the gateway asks for itself (probes)."""
        found = self.tap.exchanges[self._since :]
        return [one for one in found if self._words in orjson.dumps(one.body).decode()]

    def fact(self, mistake: str) -> None:
        """Note a mistake of the engine."""
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def kind(self) -> str:
        """The engine's name, for fields that are its own."""
        return self.server.name

    async def post(self, path: str, body: Any) -> WireAnswer:
        """A request as it is."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(self.gateway.url + path, data=data, headers={"Content-Type": "application/json"}) as answer,
        ):
            received = bytearray()
            try:
                async for piece in answer.content.iter_any():
                    received += piece
            except aiohttp.ClientPayloadError:
                raise Broken("the gateway's answer broke off without its end") from None
            return WireAnswer(status=answer.status, headers=answer.headers.copy(), body=bytes(received))

    async def get(self, path: str) -> WireAnswer:
        """A page of the gateway."""
        async with aiohttp.ClientSession() as session, session.get(self.gateway.url + path) as answer:
            return WireAnswer(status=answer.status, headers=answer.headers.copy(), body=await answer.read())

    async def ask(self, ask: Ask) -> Seen:
        """A request, and its answer as a client reads it; its form, its calls and its usage are judged."""
        self._words = ask.words
        answer = await self.post(PATHS[ask.protocol], ask.body())
        try:
            seen = read(ask.protocol, answer)
        except (AssertionError, KeyError, ValueError, IndexError) as error:
            raise Broken(f"the answer is not in the form of {ask.protocol}: {str(error)[:200]}") from error
        judge(seen, ask)
        if seen.error is None and seen.usage is None:
            counted = any(exchange.usage() for exchange in self.tapped)
            expect(not counted, "an answer says the usage that the engine counted")
            self.fact("does not say its usage")
        return seen

    async def refused(self, ask: Ask, status: int, code: str | None = None) -> Seen:
        """A request that is refused with this status, and this code where one is given."""
        seen = await self.ask(ask)
        expect(seen.error is not None, f"a named error, not {seen}")
        assert seen.error is not None
        expect(seen.status == status, f"status {status}, not {seen}: {seen.error.message[:100]}")
        if code is not None and ask.protocol != "messages":
            expect(seen.error.code == code, f"code `{code}`, not `{seen.error.code}`: {seen.error.message[:100]}")
        return seen

    async def answered(self, ask: Ask) -> Seen:
        """A request that gets an answer."""
        seen = await self.ask(ask)
        if seen.error is not None:
            raise Broken(f"an answer, not {seen}: {seen.error.message[:160]}")
        return seen


def judge(seen: Seen, ask: Ask) -> None:
    """Raises `Broken` for an answer that no client may get, whatever the engine did."""
    if seen.error is not None:
        expect(seen.error.message, "an error with a message")
        expect(seen.error.code or ask.protocol == "messages", "an error with a code")
        return
    expect(seen.end, "an answer says how it ended")
    expect(not seen.calls or seen.end in ("calls", "length"), f"an answer with calls ends with them, not {seen.end!r}")
    expect(seen.calls or seen.end != "calls", "an answer without a call does not end with calls")
    for call in seen.calls:
        wrong = wrong_call(call, ask.tools)
        expect(wrong is None, f"a call is whole and on offer, or none; this is {wrong}")


def engine_mistakes(exchange: Tapped) -> Iterator[str]:
    """Mistakes of an engine in one exchange that can be told from its bytes alone."""
    error = exchange.error
    if error is not None and exchange.status == 200:
        yield "sends errors in a stream with status 200"
    if error is not None and exchange.status >= 500:
        yield f"answers {exchange.status} to what the client did wrong: {error[:90]}"
    if error is None and exchange.ended and exchange.status == 200 and "/completions" in exchange.path:
        if not exchange.data:
            yield "gives an empty answer with status 200"
        elif exchange.finish() is None:
            yield "ends an answer without a finish reason"


@contextmanager
def in_one_situation(run: Run) -> Iterator[None]:
    run._since = len(run.tap.exchanges)
    run._words = ""
    run.mistakes = []
    yield
    for exchange in run.tapped:
        for mistake in engine_mistakes(exchange):
            run.fact(mistake)


async def play(run: Run, one: Situation, patience: float | None = None) -> Outcome:
    """The outcome of a situation."""
    if patience is None:
        patience = RESTART_S if one.group == "restarts" else PATIENCE_S
    seen, gateway, skipped = "", None, None
    with in_one_situation(run):
        try:
            async with asyncio.timeout(patience):
                seen = await one.play(run)
        except Missing as missing:
            skipped = str(missing)
        except Broken as broken:
            gateway = str(broken)
        except EngineBroken as broken:
            run.fact(str(broken))
        except aiohttp.ClientError as error:
            gateway = f"an answer, not a broken connection ({type(error).__name__})"
        except TimeoutError:
            if any(not exchange.ended for exchange in run.tapped):
                run.fact(f"gave no whole answer in {patience:g} s")
            else:
                gateway = f"no answer in {patience:g} s"
    if skipped is not None:
        return Outcome(skipped=skipped)
    return Outcome(seen, gateway, tuple(run.mistakes))


@asynccontextmanager
async def beginning(server: Server) -> AsyncIterator[Run]:
    """A gateway in a process of its own in front of an engine."""
    with tempfile.TemporaryDirectory(prefix="toolwire-engines-") as folder:
        async with Tap(server.url).serving() as tap, running(Path(folder), configuration(server, tap.url)) as gateway:
            await settled(gateway.url)
            yield Run(server, gateway, tap)


async def settled(url: str) -> None:
    """Wait until the gateway knows of its servers, and has asked what it asks at the start."""
    async with asyncio.timeout(PATIENCE_S), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url + "/ready") as answer:
                page = await answer.json()
                if answer.status == 200 and all(state == "up" for state in page["backends"].values()):
                    return
            await asyncio.sleep(0.2)
