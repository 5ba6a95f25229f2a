"""Agents that take turns: `python -m bench.soak --agents 8 --minutes 10`.

Each agent sends its whole conversation with every turn, over Chat, Messages or Responses, streamed or not. Between two
turns the conversation grows, goes back and takes another way, is edited, is compacted, or stays the same; most end soon
and a new one begins. Requests go to a gateway with known conversations, and those of some conversations also to a
gateway whose caches hold nothing. The model server answers with a digest of the bytes that it got. What is checked:

- both gateways send the same bytes to the server, by digest (R34.2), and every answer is complete;
- the memory of the gateway with caches grows by less than 5 % after the warm-up.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import blake2b
from multiprocessing.connection import Connection
from typing import Any, Final

import aiohttp

from bench import corpus, played

PATHS: Final = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
MOVES: Final = ("grow", "grow", "grow", "grow", "grow", "same", "branch", "edit", "compact")
LONGEST: Final = 200
"""Messages after which a conversation is compacted."""
LAST_TURN: Final = 0.5
"""Probability that a conversation ends after a turn: most are short."""
LONG: Final = 0.05
"""Share of conversations that go on twenty times as long."""
COMPARED: Final = 0.25
"""Share of short conversations that both gateways get. Long ones are always compared."""
REPORT_S: Final = 10.0
_DIGEST: Final = re.compile(rb"digest:([0-9a-f]{32})")


def model_server(ready: Connection) -> None:
    """Serves without end; sends its port to `ready`. Answers with the digest of the request's body."""

    async def play(body: bytes, writer: asyncio.StreamWriter) -> bool:
        writer.write(_answer(blake2b(body, digest_size=16).hexdigest().encode(), b'"stream":true' in body))
        return True

    played.serve(ready, play)


def _answer(digest: bytes, stream: bool) -> bytes:
    head = b'{"id":"x","created":1,"model":"m","object":"chat.completion'
    usage = b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}'
    if stream:
        data = b"".join(
            b"data: %b\n\n" % frame
            for frame in (
                head
                + b'.chunk","choices":[{"index":0,"delta":{"content":"digest:%b."},"finish_reason":null}]}' % digest,
                head + b'.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],%b}' % usage,
                b"[DONE]",
            )
        )
    else:
        message = b'{"role":"assistant","content":"digest:%b."}' % digest
        data = head + b'","choices":[{"index":0,"message":%b,"finish_reason":"stop"}],%b}' % (message, usage)
    kind = b"text/event-stream" if stream else b"application/json"
    return b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (kind, len(data), data)


# --- agents ---------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """The state so far: turns by move, the turns that were compared, the number of conversations, their bytes, and the
    broken rules."""

    moves: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    conversations: int = 0
    sent: int = 0
    wrong: list[str] = field(default_factory=list)


class Agent:
    """A conversation, as exchanges: lists of messages after each of which the next turn may begin."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._number = 0
        self.api = rng.choice(list(PATHS))
        self.stream = rng.random() < 0.5
        self.tools = rng.choice((0, 3, 10))
        long = rng.random() < LONG
        self.last_turn = LAST_TURN / 20 if long else LAST_TURN
        self.compared = long or rng.random() < COMPARED
        self._said = [self._asked() for _ in range(rng.choice((1, 5, 20, 60)))]

    def body(self) -> bytes:
        """Returns the request of the next turn."""
        said = [message for exchange in self._said for message in exchange]
        return corpus.conversation_body(self.tools, said, api=self.api, stream=self.stream, store=False)

    def move(self) -> str:
        """Changes the conversation, and returns the name of the move."""
        move = "compact" if sum(map(len, self._said)) > LONGEST else self._rng.choice(MOVES)
        at = self._rng.randrange(len(self._said))
        match move:
            case "grow":
                self._said.append(self._turn() if self.tools else [self._spoken(), *self._asked()])
            case "branch":
                self._said[at:] = [self._asked()]
            case "edit":
                message = self._said[at][-1]
                self._said[at] = [*self._said[at][:-1], {**message, "content": f"{message['content']} Or not."}]
            case "compact":
                self._said[:-1] = [[*self._asked(), self._spoken()]]
        return move

    def _turn(self) -> list[dict[str, Any]]:
        """Returns a call, its result, and the user's next words."""
        self._number += 1
        ident = f"call_{self._number:08d}abcdef"
        function = {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
        called = {**self._spoken(), "tool_calls": [{"id": ident, "type": "function", "function": function}]}
        return [called, {"role": "tool", "tool_call_id": ident, "content": self._text()}, *self._asked()]

    def _asked(self) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self._text()}]

    def _spoken(self) -> dict[str, Any]:
        return {"role": "assistant", "content": self._text()}

    def _text(self) -> str:
        size = self._rng.choice((40, 400, 400, 3000))
        words = self._rng.choices(corpus.WORDS, k=size // 6)
        return " ".join(words) + self._rng.choice((".", ' é "quoted" \\ <tool_call> 🚀', "\n"))


async def agent(session: aiohttp.ClientSession, urls: list[str], rng: random.Random, tally: Tally, end: float) -> None:
    """Takes turns until the time is over, in one conversation after the other."""
    while time.monotonic() < end:
        mine = Agent(rng)
        tally.conversations += 1
        asked = urls if mine.compared else urls[:1]
        move = "begin"
        while time.monotonic() < end:
            body = mine.body()
            answers = await asyncio.gather(*(_ask(session, url + PATHS[mine.api], body) for url in asked))
            tally.moves[move] += 1
            tally.sent += len(body)
            tally.compared += mine.compared
            if len(set(answers)) != 1 or not answers[0].startswith("digest"):
                tally.wrong.append(f"{mine.api}, {move}: {answers}")
            if rng.random() < mine.last_turn:
                break
            move = mine.move()


async def _ask(session: aiohttp.ClientSession, url: str, body: bytes) -> str:
    """Returns the digest of what the server got, or the mistake."""
    async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
        answer = await response.read()
    found = _DIGEST.search(answer)
    return f"digest {found[1].decode()}" if found else f"{response.status} {answer[:300]!r}"


async def run(
    urls: list[str], pid: int, agents: int, minutes: float, seed: int, memory: Callable[[int], int]
) -> tuple[Tally, list[int]]:
    """Lets the agents run. Returns the tally, and the memory of the worker of `pid` every ten seconds."""
    tally, sizes = Tally(), [memory(pid)]
    begin = time.monotonic()
    end = begin + minutes * 60
    timeout = aiohttp.ClientTimeout(total=120)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        running = asyncio.gather(
            *(agent(session, urls, random.Random(f"{seed} {n}"), tally, end) for n in range(agents))
        )
        while not running.done():
            await asyncio.wait([running], timeout=REPORT_S)
            sizes.append(memory(pid))
            print(
                f"{time.monotonic() - begin:6.0f} s  conversations {tally.conversations}  turns {tally.moves.total()}  "
                f"sent {tally.sent >> 20} MiB  wrong {len(tally.wrong)}  {sizes[-1] / 1024:.1f} MiB",
                flush=True,
            )
        await running
    return tally, sizes


def report(tally: Tally, sizes: list[int], grew: Callable[[list[int]], float], allowed: float) -> bool:
    """Prints the result. Returns True if no rule was broken."""
    print(f"\nconversations: {tally.conversations}, turns: {dict(tally.moves)}, {tally.sent >> 20} MiB sent")
    print(f"turns compared by digest: {tally.compared}")
    for text in tally.wrong[:20]:
        print("WRONG", text)
    warm = sizes[max(1, len(sizes) // 3) :]
    growth = grew(warm) if len(warm) >= 5 else 0.0
    print(f"memory: {sizes[0] / 1024:.1f} MiB at rest, {sizes[-1] / 1024:.1f} at the end, {growth:+.1%} after a third")
    good = not tally.wrong and growth < allowed
    print("all held" if good else "NOT GOOD")
    return good
