"""Compares engines that validate the schemas of clients, for docs/adr/0003.

Each case runs in its own process, because some never end: `fastjsonschema`, `jsonschema-rs` with default settings, and
`toolwire.schemas.schema`, which limits the latter. Prints tables of compile and check times, of the waiting time of
other threads, and of request bodies.

python -m bench.schema_engines [--seconds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import multiprocessing
import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

MIB = 1024 * 1024


# --- cases: name -> (schema, arguments) -----------------------------------------------------------------------------


def _fan_out(levels: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return {"type": "object", "$defs": {**defs, f"a{levels}": {}}, "$ref": "#/$defs/a0"}


def _deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def _text(pattern: str, length: int, text: str = "a") -> tuple[dict[str, Any], Any]:
    return {"type": "object", "properties": {"a": {"pattern": pattern}}}, {"a": text * length + "!"}


def _twice() -> dict[str, Any]:
    branch = {"properties": {"k": {"$ref": "#/$defs/n"}}}
    return {"$defs": {"n": {"type": "object", "anyOf": [branch, {**branch}]}}, "type": "object", "$ref": "#/$defs/n"}


def _nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"k": value}
    return value


def cases(port: int) -> dict[str, tuple[Any, Any]]:
    """Returns all cases. `port`: a server that counts fetches."""
    ordinary = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "array", "items": {"type": "integer"}}},
        "required": ["path"],
        "additionalProperties": False,
    }
    tree = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"type": "array", "items": {"$ref": "#"}}},
    }
    return {
        "ordinary tool": (ordinary, {"path": "a.txt", "lines": [1, 2]}),
        "2,000 properties": ({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2_000)}}, {}),
        "10,000 properties": (
            {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(10_000)}},
            {},
        ),
        "1 MB of enum": (
            {"type": "object", "properties": {"a": {"enum": [f"v{i}" for i in range(100_000)]}}},
            {"a": "v9"},
        ),
        "30 levels": (_deep(30), {}),
        "500 levels": (_deep(500), {}),
        "2,000 references": (
            {
                "type": "object",
                "$defs": {"x": {}},
                "properties": {f"p{i}": {"$ref": "#/$defs/x"} for i in range(2_000)},
            },
            {},
        ),
        "recursive type": (tree, {"v": 1, "next": [{"v": 2, "next": []}]}),
        "loop of references": ({"type": "object", "anyOf": [{"required": ["a"]}, {"$ref": "#"}]}, {}),
        "fan-out 2^12": (_fan_out(12), {}),
        "fan-out 2^40": (_fan_out(40), {}),
        "ambiguous recursion, 40 deep": (_twice(), _nested(40)),
        "`^(a+)+$` on 40 characters": _text("^(a+)+$", 40),
        "`^(a+)+$` on 15,000": _text("^(a+)+$", 15_000),
        "look-around in a loop on 20,000": _text(r"(?:(?=([01]*1))[01])+x", 10_000, "01"),
        "`[01]*1[01]{200}[^01]x?` on 500,000": (
            _text("[01]*1[01]{200}[^01]x?", 0)[0],
            {"a": f"{random.Random(1).getrandbits(500_000):b}"},
        ),
        "900 schemas x 100,000 items": (
            {"type": "object", "properties": {"a": {"items": {"allOf": [{"type": "integer"}] * 900}}}},
            {"a": list(range(100_000))},
        ),
        "remote `$ref`": ({"type": "object", "properties": {"a": {"$ref": f"http://127.0.0.1:{port}/s"}}}, {"a": 1}),
        "`minLength: 1e308`": ({"type": "object", "properties": {"a": {"minLength": 1e308}}}, {"a": "x"}),
        'property `"); import os; ("`': (
            {"type": "object", "properties": {'"); import os; ("': {"type": "string"}}},
            {},
        ),
    }


# --- engines --------------------------------------------------------------------------------------------------------


def _fastjsonschema(schema: Any) -> Callable[[Any], bool]:
    import fastjsonschema

    validate = fastjsonschema.compile(schema, use_default=False)

    def check(value: Any) -> bool:
        try:
            validate(value)
        except fastjsonschema.JsonSchemaValueException:
            return False
        return True

    return check


def _jsonschema_rs(schema: Any) -> Callable[[Any], bool]:
    import jsonschema_rs

    jsonschema_rs.meta.validate(schema)
    return jsonschema_rs.validator_for(schema).is_valid


def _ours(schema: Any) -> Callable[[Any], bool | str]:
    from toolwire.schemas.schema import compile_schema

    compiled = compile_schema(schema)

    def check(value: Any) -> bool | str:
        flaw = compiled.check(json.dumps(value))
        return "refused" if flaw is not None and "too large" in flaw else flaw is None

    return check


ENGINES: dict[str, Callable[[Any], Callable[[Any], bool | str]]] = {
    "fastjsonschema": _fastjsonschema,
    "jsonschema-rs": _jsonschema_rs,
    "toolwire.schemas.schema": _ours,
}


def _child(engine: str, case: str, port: int, out: Any) -> None:
    schema, value = cases(port)[case]
    ENGINES[engine]({"type": "object"})  # imports and the first use are not measured
    start = time.perf_counter()
    try:
        check = ENGINES[engine](schema)
    except BaseException as error:  # a panic in Rust raises its own class
        out.send(("refused", _ms(start), type(error).__name__))
        return
    compiled = _ms(start)
    out.send(("compiled", compiled, ""))
    start = time.perf_counter()
    try:
        verdict = check(value)
    except BaseException as error:
        out.send(("broke", _ms(start), type(error).__name__))
        return
    # An engine returns a bool or a text.
    shown = verdict if isinstance(verdict, str) else "fits" if verdict else "does not fit"
    out.send(("checked", _ms(start), shown))


def _ms(start: float) -> float:
    return (time.perf_counter() - start) * 1_000


def _run(engine: str, case: str, port: int, seconds: float) -> str:
    receive, send = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("spawn").Process(target=_child, args=(engine, case, port, send))
    child.start()
    send.close()
    shown: list[str] = []
    try:
        while receive.poll(seconds + 2):
            state, took, note = receive.recv()
            shown.append(f"{took:.2f} ms" + (f" {note}" if note else ""))
            if state != "compiled":
                break
        else:
            shown.append(f"**over {seconds:g} s**")
    except EOFError:
        child.join()
        shown.append(f"**process died ({child.exitcode})**")
    child.kill()
    child.join()
    return ", ".join(shown)


# --- what others have to wait ---------------------------------------------------------------------------------------


def longest_gap(work: Callable[[], object]) -> tuple[float, float]:
    """Returns the time of `work`, and the longest time that another thread had to wait meanwhile, both in ms."""
    gap, stop = 0.0, threading.Event()

    def tick() -> None:
        nonlocal gap
        last = time.perf_counter()
        while not stop.is_set():
            time.sleep(0.0005)
            now = time.perf_counter()
            gap, last = max(gap, now - last), now

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    work()
    took = _ms(start)
    stop.set()
    thread.join()
    return took, gap * 1_000


def show_lock() -> None:
    """Prints whether the engines release the interpreter lock."""
    import jsonschema_rs

    wide = {"properties": {f"p{i}": {"anyOf": [{"const": i}, {"type": "null"}]} for i in range(20_000)}}
    validator = jsonschema_rs.validator_for(_fan_out(22))
    print("\n| jsonschema-rs | took | others waited at most |\n| --- | --- | --- |")
    for name, work in (("compile 20,000 properties", partial(jsonschema_rs.validator_for, wide)),
                       ("check 2^22 schemas", partial(validator.is_valid, {}))):  # fmt: skip
        took, gap = longest_gap(work)
        print(f"| {name} | {took:.0f} ms | {gap:.0f} ms |")


# --- bodies ---------------------------------------------------------------------------------------------------------


def bodies() -> dict[str, bytes]:
    """Returns request bodies of up to 32 MiB."""
    size = 32 * MIB - 64
    some = 100_000 - 8
    wrapped = {
        "one string": b'"' + b"a" * size + b'"',
        "one string of `\\n`": b'"' + b"\\n" * (size // 2) + b'"',
        "one string of `é`": b'"' + "é".encode() * (size // 2) + b'"',
        "`[[[[`": b"[" * size,
        "`[1,1,`": b"[" + b"1," * (size // 2) + b"1]",
        "`[[],[],`": b"[" + b"[]," * (size // 3) + b"1]",
        '`{"a":{"a":`': b'{"a":' * (size // 5),
        "only quotes": b'"' * size,
        "100,000 strings of 300 bytes": b"[" + (b'"' + b"a" * 300 + b'",') * some + b"1]",
        "100,000 numbers": b"[" + b"1," * some + b"1]",
        "50,000 empty arrays": b"[" + b"[]," * (some // 2) + b"1]",
        "100,000 keys": b"{" + b",".join(b'"%d":1' % i for i in range(some)) + b"}",
    }
    return {name: b'{"a":%b}' % value for name, value in wrapped.items()}


async def _stall(body: bytes) -> tuple[float, float, str]:
    from toolwire.config import LimitsConfig
    from toolwire.errors import ClientFault
    from toolwire.ingress.bodies import read_json

    gap, done = 0.0, False

    async def tick() -> None:
        nonlocal gap
        last = time.perf_counter()
        while not done:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gap, last = max(gap, now - last), now

    other = asyncio.create_task(tick())
    await asyncio.sleep(0)
    start, verdict = time.perf_counter(), "read"
    try:
        await read_json(body, LimitsConfig(json_values=100_000))
    except ClientFault:
        verdict = "400"
    took = _ms(start)
    await asyncio.sleep(0)
    done = True
    await other
    return took, gap * 1_000, verdict


def show_bodies() -> None:
    """Compares parsing at once with `toolwire.ingress.bodies`."""
    import orjson

    print("\n| body | MiB | orjson.loads | read_json | loop stalled | verdict |\n| --- | --- | --- | --- | --- | --- |")
    for name, body in bodies().items():
        start = time.perf_counter()
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            pass
        at_once = _ms(start)
        took, gap, verdict = min((asyncio.run(_stall(body)) for _ in range(3)), key=lambda row: row[1])
        print(f"| {name} | {len(body) / MIB:.1f} | {at_once:.0f} ms | {took:.0f} ms | {gap:.0f} ms | {verdict} |")


def main() -> None:
    """Prints all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="give up on a case after this long")
    seconds = parser.parse_args().seconds
    fetched: list[str] = []

    class Counter(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fetched.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type":"string"}')

        def log_message(self, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        print(f"Compile, check. `refused` is an error with a reason.\n\n| case | {' | '.join(ENGINES)} |")
        print("| --- " * (1 + len(ENGINES)) + "|")
        for case in cases(port):
            row = []
            for engine in ENGINES:
                fetched.clear()
                shown = _run(engine, case, port, seconds)
                row.append(shown + (" **(fetched)**" if fetched else ""))
            print(f"| {case} | {' | '.join(row)} |", flush=True)
        server.shutdown()
    show_lock()
    show_bodies()


if __name__ == "__main__":
    main()
