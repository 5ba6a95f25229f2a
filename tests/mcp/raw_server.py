"""An MCP server that knows no SDK, and what hostile ones do: `python raw_server.py '{"mode": ..., ...}'`.

`mode`: how it behaves as a whole; each tool is a way to behave in one call. `pids`: a file that gets a line for each
process that it is. `hangs`: one that gets a line for each call of `hang` that has come.
"""

import json
import os
import subprocess
import sys
import time
from typing import Any

OPTIONS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
MODE = OPTIONS.get("mode", "")
EMPTY = {"type": "object"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

PLAIN = ["die", "hang", "big", "junk", "wrong_id", "flood", "complain", "change", "env", "ask", "cancelled", "fails"]
PLAIN += ["image", "structured", "both", "audio", "embedded", "refuses", "slow_line", "pid", "odd_parts"]
CHILD: list[subprocess.Popen[bytes]] = []
seen: list[Any] = []
cancelled: list[Any] = []
changed = False


def say(message: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def tool(name: str, schema: Any = None, description: str = "Does it.") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": EMPTY if schema is None else schema}


def listed(params: dict[str, Any]) -> dict[str, Any]:
    if MODE == "endless":
        number = int(params.get("cursor") or 0)
        return {"tools": [tool(f"tool{number}")], "nextCursor": str(number + 1)}
    if MODE == "many":
        return {"tools": [tool(f"tool{number}") for number in range(1000)]}
    if "tools" in OPTIONS:
        return {"tools": OPTIONS["tools"]}
    more = [tool("new")] if changed else []
    return {"tools": [tool("echo", TEXT), *map(tool, PLAIN), *more]}


def text(*texts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": each} for each in texts], **more}


def called(name: str, arguments: dict[str, Any], number: Any) -> dict[str, Any] | None:
    """The result, or None if there is none."""
    global changed
    match name:
        case "die":
            os._exit(3)
        case "hang":
            if "hangs" in OPTIONS:
                with open(OPTIONS["hangs"], "a") as file:
                    file.write("hangs\n")
            return None
        case "big":
            return text("x" * 50_000_000)
        case "slow_line":
            sys.stdout.buffer.write(b"x" * 100_000_000)
            return None
        case "junk":
            sys.stdout.write('Hello, I am a server!\n{}\n[1]\nnull\n{"jsonrpc": "2.0"}\n\x00\xff\n')
            return text("after junk")
        case "wrong_id":
            for other in (number + 1000, str(number) + "x", None):
                say({"id": other, "result": text("not yours")})
            return text("mine")
        case "flood":
            line = json.dumps(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            )
            sys.stdout.write((line + "\n") * OPTIONS.get("notifications", 5000))
            return text("after the flood")
        case "complain":
            sys.stderr.write("complaint\n" * 100_000)
            sys.stderr.write("z" * 1_000_000 + "\n")
            sys.stderr.flush()
            return text("complained")
        case "change":
            changed = True
            for _ in range(50):
                say({"method": "notifications/tools/list_changed"})
            return text("changed")
        case "env":
            return text(json.dumps(dict(os.environ)))
        case "pid":
            return text(str(os.getpid()))
        case "cancelled":
            return text(json.dumps(cancelled))
        case "fails":
            return text("it did not work", isError=True)
        case "refuses":
            say(
                {
                    "id": number,
                    "error": {"code": -32602, "message": "no such thing; token " + os.environ.get("TOKEN", "")},
                }
            )
            return None
        case "image":
            image = {"type": "image", "data": DOT, "mimeType": "image/png"}
            return {"content": [{"type": "text", "text": "before"}, image, {"type": "text", "text": "after"}]}
        case "structured":
            return {"content": [], "structuredContent": {"a": [1, "ü"]}}
        case "both":
            return text('{"a": 1}', structuredContent={"a": 1})
        case "audio":
            return {"content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}]}
        case "odd_parts":
            broken = {"type": "image", "data": "not base64!", "mimeType": "image/png"}
            vector = {"type": "image", "data": "AAAA", "mimeType": "image/svg+xml"}
            return {"content": [broken, vector]}
        case "embedded":
            return {
                "content": [
                    {"type": "resource", "resource": {"uri": "a://b", "text": "inside", "mimeType": "text/plain"}},
                    {"type": "resource", "resource": {"uri": "a://c", "blob": "AAAA", "mimeType": "application/pdf"}},
                    {"type": "resource_link", "uri": "a://d", "name": "doc", "description": "a document"},
                ]
            }
        case "ask":
            answers = []
            for method, params in (
                ("sampling/createMessage", {"messages": [], "maxTokens": 5}),
                (
                    "elicitation/create",
                    {"message": "Your password?", "requestedSchema": {"type": "object", "properties": {}}},
                ),
                ("roots/list", {}),
                ("ping", {}),
                ("nonsense/all", {}),
            ):
                say({"id": method, "method": method, "params": params})
                answers.append(next(message for message in messages() if message.get("id") == method))
            return text(json.dumps({each["id"]: "error" in each for each in answers}))
    return text(f"{name}: {json.dumps(arguments, sort_keys=True)}")


def messages() -> Any:
    while line := sys.stdin.readline():
        yield json.loads(line)


def main() -> None:
    if "pids" in OPTIONS:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=subprocess.DEVNULL)
        CHILD.append(child)
        with open(OPTIONS["pids"], "a") as file:
            file.write(f"{os.getpid()} {child.pid}\n")
    if MODE == "exit":
        sys.exit(7)
    for message in messages():
        number, params = message.get("id"), message.get("params") or {}
        seen.append(message)
        match message.get("method"):
            case "initialize" if MODE == "silent":
                pass
            case "initialize":
                said = OPTIONS.get("protocol", "2025-06-18")
                capabilities: dict[str, Any] = {} if MODE == "no_tools" else {"tools": {"listChanged": True}}
                info = {"name": "raw", "version": "1"}
                say(
                    {
                        "id": number,
                        "result": {"protocolVersion": said, "capabilities": capabilities, "serverInfo": info},
                    }
                )
            case "tools/list" if MODE == "no_tools":
                say({"id": number, "error": {"code": -32601, "message": "no tools here"}})
            case "tools/list":
                say({"id": number, "result": listed(params)})
            case "tools/call":
                result = called(params["name"], params.get("arguments") or {}, number)
                if result is not None:
                    say({"id": number, "result": result})
            case "notifications/cancelled":
                cancelled.append(params.get("requestId"))
            case "server/discover" if MODE in ("silent", "only_initialize"):
                if MODE == "only_initialize":
                    sys.exit(9)
            case _ if number is not None:
                say({"id": number, "error": {"code": -32601, "message": "unknown method"}})
    while MODE == "immortal":
        time.sleep(1)


if __name__ == "__main__":
    if MODE == "immortal":
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    main()
