"""The main loop of a worker: runs one module or one call at a time, and sends its result.

Frames to the worker (`frames`): first its setup, `{snapshot, memory, path, on_oversize}`; then `{n, load, text, cpu}`
to load a module and `{n, call, tool, values, cpu}` to run a call. Answers repeat the number `n`. Frames from the
worker: `{ready, unbound}`, the limits that cannot be enforced; for a module `{n, declared, handler}` or `{n, failed}`;
for a call `{n, begun}` when the handler is about to run, then `{n, text, failed, spent}`. `spent`: the worker must get
no further call.

Rules:

1. A handler sees nothing of an earlier one: the working folder and the standard streams are restored, tasks of
   coroutines are cancelled, processes are killed (`leftovers`). Memory that stays in use can make the worker end
   (`spent`).
2. A fork of a handler that returns from the handler ends here.
3. Without the gateway the worker ends.
"""

from __future__ import annotations

import inspect
import math
import os
import resource
import socket
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from .answers import HandlerAnswer, answer_for_error, answer_for_value
from .frames import HEAD, decode_frame, encode_frame
from .importing import Modules
from .leftovers import Leftovers
from .sources import decode_snapshot
from .values import encode

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

MAX_ERROR_CHARS = 2000


def main(data: int) -> None:
    """Serves orders on the descriptor `data` until it is closed."""
    channel = socket.socket(fileno=data)
    channel.set_inheritable(False)
    setup = _received(channel)
    if setup is None:
        return
    unbound = hold(setup["memory"])
    sys.dont_write_bytecode = True
    for stream in (sys.stdout, sys.stderr):
        # Line by line, so that the output of a killed worker is in the log.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]  # `TextIO` lacks it
    sys.argv = ["toolwire-tools"]
    sys.path += [entry for entry in setup["path"] if entry not in sys.path]
    worker = Worker(channel, setup)
    worker.send({"ready": True, "unbound": unbound})
    while (asked := _received(channel)) is not None:
        if "load" in asked:
            worker.load(asked)
        else:
            worker.call(asked)


def _received(channel: socket.socket) -> dict[str, Any] | None:
    """Returns the next frame; None at the end."""
    head = _exactly(channel, HEAD.size)
    text = None if head is None else _exactly(channel, HEAD.unpack(head)[0])
    return None if text is None else decode_frame(text)


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _working_folder() -> str:
    """Returns the working folder of the gateway, or the root if it no longer exists, as after the removal of an older
    release."""
    try:
        return os.getcwd()
    except OSError:
        os.chdir(os.sep)
        return os.sep


class Worker:
    """The loaded modules, and the calls of their handlers."""

    def __init__(self, channel: socket.socket, setup: dict[str, Any]) -> None:
        self._channel = channel
        self._memory: int | None = setup["memory"]
        self._on_oversize = setup["on_oversize"]
        self._modules = Modules(decode_snapshot(setup["snapshot"]))
        self._handlers: dict[str, Handler] = {}
        self._loop: AbstractEventLoop | None = None
        self._pid = os.getpid()
        self._streams = sys.stdout, sys.stderr
        self._home = _working_folder()
        self._leftovers = Leftovers()

    def send(self, what: dict[str, Any]) -> None:
        """Sends a frame to the gateway. Ends the process if it is a fork (rule 2)."""
        if os.getpid() != self._pid:
            os._exit(0)
        self._channel.sendall(encode_frame(what))

    def load(self, asked: dict[str, Any]) -> None:
        """Runs a module, and sends its declarations or the reason why it cannot be used."""
        allow(asked["cpu"])
        file = asked["load"]
        try:
            handler, tools = declared(self._modules.run(file, asked["text"].encode("latin-1")))
            answer = {"n": asked["n"], "declared": encode(tools), "handler": handler is not None}
            if handler is not None:
                self._handlers[file] = handler
                if is_coroutine(handler):
                    self._side_loop()  # now, because it is slow
            self._leftovers.mark_running()
        except BaseException as error:
            kind = type(error).__name__
            answer = {"n": asked["n"], "failed": [kind[:MAX_ERROR_CHARS], text_of(error)[:MAX_ERROR_CHARS]]}
        self._clean()
        self.send(answer)

    def call(self, asked: dict[str, Any]) -> None:
        """Runs a handler and sends its result."""
        allow(asked["cpu"])
        handler = self._handlers[asked["call"]]
        number, tool, values = asked["n"], asked["tool"], asked["values"]
        spent = False
        self.send({"n": number, "begun": True})
        try:
            answer = (
                self._awaited(handler, tool, values) if is_coroutine(handler) else self._returned(handler(tool, values))
            )
        except BaseException as error:
            answer = answer_for_error(error)
            spent = isinstance(error, MemoryError)
        self._flush()
        left = os.getpid() == self._pid and not self._leftovers.end()
        spent = spent or left or is_full(self._memory) or not self._has_streams()
        self.send({"n": number, "text": answer.text, "failed": answer.failed, "spent": spent})
        self._clean()

    def _returned(self, value: object) -> HandlerAnswer:
        return answer_for_value(value, self._on_oversize)

    # --- coroutines -------------------------------------------------------------------------------------------------

    def _side_loop(self) -> AbstractEventLoop:
        """Returns one event loop for all calls, because objects that a module keeps may belong to it."""
        if self._loop is None:
            import asyncio

            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)
        return self._loop

    def _awaited(self, handler: Handler, tool: str, values: dict[str, Any]) -> HandlerAnswer:
        async def run() -> HandlerAnswer:
            try:
                return self._returned(await handler(tool, values))
            except MemoryError:
                raise
            except BaseException as error:
                return answer_for_error(error)

        loop = self._side_loop()
        task = loop.create_task(run())
        task.add_done_callback(lambda _: loop.stop())
        while not task.done():
            try:
                loop.run_forever()
            except BaseException:  # raised by another task of the handler, such as SystemExit
                continue
        return task.result()

    # --- afterwards (rule 1) ----------------------------------------------------------------------------------------

    def _flush(self) -> None:
        for stream in {sys.stdout, sys.stderr, *self._streams}:
            try:
                stream.flush()
            except BaseException:
                pass  # a handler has closed or replaced it
        sys.stdout, sys.stderr = self._streams

    def _has_streams(self) -> bool:
        """Returns True if the standard streams are still open."""
        try:
            os.fstat(1), os.fstat(2)
        except OSError:
            return False
        return not any(stream.closed for stream in self._streams)

    def _clean(self) -> None:
        self._flush()
        if self._loop is not None:
            self._cancel_tasks(self._loop)
        self._leftovers.end()  # started by those tasks
        try:
            os.chdir(self._home)
        except OSError:
            pass  # the folder no longer exists; the next handler sees the same
        logging = sys.modules.get("logging")
        if logging is not None and not logging.getLogger().handlers:
            logging.basicConfig(stream=sys.stderr, level="INFO", format="%(levelname)s %(name)s: %(message)s")

    def _cancel_tasks(self, loop: AbstractEventLoop) -> None:
        import asyncio

        while tasks := [task for task in asyncio.all_tasks(loop) if not task.done()]:
            for task in tasks:
                task.cancel()
                task.add_done_callback(lambda _: loop.stop())
            try:
                loop.run_forever()
            except BaseException:
                continue


# --- declared tools ---------------------------------------------------------------------------------------------------


Handler = Callable[[str, dict[str, Any]], Any]
"""`handle_tool_call(tool_name, tool_input) -> str`, or a coroutine function that returns a `str`."""


def declared(module: ModuleType) -> tuple[Handler | None, Any]:
    """Returns the handler (or None) and the declared tools: the result of `get_tools()`, or `TOOLS`. Both may be
    members of a class `PromptGenerator`, which is instantiated here. Runs the module's code and raises its
    exceptions."""
    names = vars(module)
    made = names.get("PromptGenerator")
    owner = made() if inspect.isclass(made) else None
    handler = names.get("handle_tool_call") or getattr(owner, "handle_tool_call", None)
    get_tools = names.get("get_tools") or getattr(owner, "get_tools", None)
    if callable(get_tools):
        tools = get_tools()
        if inspect.isawaitable(tools):
            import asyncio  # most modules do without, and it takes as long as all the rest of a worker

            async def result(awaitable: Any) -> Any:
                return await awaitable

            tools = asyncio.run(result(tools))
    else:
        tools = names.get("TOOLS", getattr(owner, "TOOLS", None))
    return handler if callable(handler) else None, tools


def is_coroutine(handler: Handler) -> bool:
    """Returns True if the handler is a coroutine function, or an object with an asynchronous `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def text_of(error: BaseException) -> str:
    """Returns the text of a module's exception, with the line for syntax errors; a note if `str()` fails."""
    try:
        return str(error) or type(error).__name__
    except BaseException as worse:
        return f"its text cannot be read: {type(worse).__name__}"


# --- limits of the process --------------------------------------------------------------------------------------------


FILES: Final = 1024
"""Maximum number of open files of a worker. A gateway may have tens of thousands; programs that close all descriptors
would be slow."""

STARTING_S: Final = 60.0
"""Processor time in seconds that a worker may use before its first order."""

FULL: Final = 0.5
"""A worker that holds more than this part of its memory limit after a call gets no further call, which could run out of
memory."""


def _lower(which: int, soft: int, hard: int | None = None) -> bool:
    """Sets a limit, never above the existing hard one. Returns False if the system refuses."""
    most = resource.getrlimit(which)[1]
    bound = [value if most == resource.RLIM_INFINITY else min(value, most) for value in (soft, hard or soft)]
    if hard is None and which != resource.RLIMIT_CORE:
        bound[1] = most
    try:
        resource.setrlimit(which, (bound[0], bound[1]))
    except (OSError, ValueError):
        return False  # macOS does not limit the address space; system call filters may forbid all limits
    return True


def hold(memory: int | None) -> list[str]:
    """Limits this process and its children. `memory`: bytes of address space, None for no limit. Returns the options
    that the system cannot enforce."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_NOFILE, FILES)
    held = {
        "tools.memory_bytes": memory is None or _lower(resource.RLIMIT_AS, memory, memory),
        "tools.cpu_s": allow(STARTING_S),
    }
    return [name for name, is_held in held.items() if not is_held]


def allow(seconds: float) -> bool:
    """Limits the processor time of this process, over all threads, to `seconds` from now. Beyond it SIGXCPU ends the
    process. Returns False if the system refuses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return _lower(resource.RLIMIT_CPU, math.ceil(usage.ru_utime + usage.ru_stime + seconds))


def is_full(memory: int | None) -> bool:
    """Returns True if so much memory is in use that the next call could fail."""
    if memory is None:
        return False
    try:
        with open("/proc/self/statm", "rb") as file:
            held = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return False
    return held > memory * FULL
