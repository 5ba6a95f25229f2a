"""`toolwire doctor`: what it says of set-ups that are right, and of those that are not."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import toolwire.extras.doctor.machine
import toolwire.fastparse
from tests.backends.peers import self_signed
from tests.cases import every
from tests.e2e.conftest import function
from tests.store.redis_server import RedisServer
from tests.waiting import GUARD_S
from toolwire.cli import main

MODELS = {"object": "list", "data": [{"id": "qwen", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]}


def completion(finish: str, **message: Any) -> dict[str, Any]:
    """A whole answer of a server."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "qwen", "choices": [choice]}


READY = {"id": "t", "type": "function", "function": {"name": "report_ready", "arguments": '{"ready": true}'}}
CALL = completion("tool_calls", content=None, tool_calls=[READY])
VLLM: Mapping[str, Any] = {
    "/v1/models": MODELS,
    "/version": {"version": "0.11.2"},
    "/tokenize": {"count": 7, "max_model_len": 4096, "tokens": [1] * 7},
    "/v1/chat/completions": CALL,
}

MOCK: Mapping[str, Any] = {"backends": {"m": {"kind": "mock"}}}

Paths = Mapping[str, Any]
Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server that answers by its paths, and give its address. An answer that is a number is a status; a
    function is called for each request."""
    running: list[ThreadingHTTPServer] = []

    def start(paths: Paths, *, key: str | None = None, clock: timedelta = timedelta(), tls: Any = None) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = paths.get(self.path, 404)
                answer = answer() if callable(answer) else answer
                if key is not None and self.headers.get("Authorization") != f"Bearer {key}":
                    answer = 401
                said = answer if isinstance(answer, str) else json.dumps({} if isinstance(answer, int) else answer)
                self.send_response_only(answer if isinstance(answer, int) else 200)
                self.send_header("Date", format_datetime(datetime.now(UTC) + clock, usegmt=True))
                self.send_header("Content-Type", "text/html" if isinstance(answer, str) else "application/json")
                self.send_header("Content-Length", str(len(said.encode())))
                self.end_headers()
                self.wfile.write(said.encode())

            do_POST = do_GET  # noqa: N815  # the library's own name

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:  # whoever looks at a certificate alone hangs up
                pass

        server = Server(("127.0.0.1", 0), Handler)
        running.append(server)
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return f"{'http' if tls is None else 'https'}://localhost:{server.server_port}"

    yield start
    for server in running:
        server.shutdown()
        server.server_close()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the doctor in an empty folder and home."""
    for name in [name for name in os.environ if name.startswith("TOOLWIRE_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)

    def run(*args: str, config: Mapping[str, Any] | None = None, **kwargs: Any) -> Result:
        if config is not None:
            Path("c.yaml").write_text(json.dumps({"server": {"port": 0}, "store": {"kind": "none"}, **config}))
            args = ("c.yaml", *args)
        return CliRunner().invoke(main, ["doctor", *args], catch_exceptions=False, **kwargs)

    return run


Run = Callable[..., Result]


def findings(result: Result, area: str) -> dict[str, dict[str, str]]:
    """What was found in an area, by what it says."""
    return {one["what"]: one for one in json.loads(result.stdout)["findings"] if one["area"] == area}


def level(found: Mapping[str, Mapping[str, str]], words: str) -> str:
    """Of the one finding with these words."""
    (one,) = [finding for what, finding in found.items() if words in what]
    assert bool(one["todo"]) == (one["level"] != "ok")
    assert bool(one["why"]) == (one["level"] in ("warning", "problem"))
    return one["level"]


def test_advice_is_no_good_news_and_no_problem(run: Run, serve: Serve) -> None:
    backends = {"b": {"url": serve({"/v1/models": MODELS}), "preset": "generic"}}
    result = run("--json", "--no-probe", config={"backends": backends})
    assert result.exit_code == 0
    assert level(findings(result, "backend b"), "are not enforced while decoding") == "advice"
    assert json.loads(result.stdout)["warnings"] == 0


def test_everything_is_asked_at_once_and_the_wait_is_announced(run: Run, serve: Serve) -> None:
    """A server that answers one request only when it has another: its date and its models are asked for together."""
    both = threading.Barrier(2, timeout=GUARD_S)

    def models() -> Any:
        if not both.broken:
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait()
            both.abort()
        return MODELS

    url = serve({"/v1/models": models})
    result = run("--json", "--no-probe", config={"backends": {"b": {"url": url, "identify_s": 0}}})
    assert "Its clock and that of this machine agree." in findings(result, "backend b")
    assert result.stderr.startswith("asking backend b; at most a few seconds")


# --- servers --------------------------------------------------------------------------------------------------------


def test_a_good_server(run: Run, serve: Serve) -> None:
    url = serve(VLLM, key="k-4711")
    result = run("--json", config={"backends": {"gpu": {"url": url, "api_key": "k-4711"}}})
    assert result.exit_code == 0, result.output
    found = findings(result, "backend gpu")
    assert {one["level"] for one in found.values()} == {"ok"}
    assert f"It answers at {url}, as vLLM 0.11.2 (preset vllm, detected)." in found
    assert 'It serves "qwen".' in found
    assert "It counts a prompt's tokens." in found
    assert 'Route "*": required calls are enforced while decoding (guided).' in found
    assert "Its clock and that of this machine agree." in found
    assert '"qwen", asked for a call of a tool: it called the tool by itself (`mode: native`).' in found
    assert "k-4711" not in result.output


def test_without_a_file(run: Run, serve: Serve) -> None:
    result = run("--backend", serve(VLLM), "--no-probe", "--json", env={"TOOLWIRE_SERVER__PORT": "0"})
    assert result.exit_code == 0, result.output
    assert level(findings(result, "configuration"), "There is no configuration file") == "ok"
    assert level(findings(result, "backend default"), "as vLLM 0.11.2") == "ok"
    assert "asked for a call" not in result.output


def test_a_dead_server_holds_up_nobody(run: Run, serve: Serve) -> None:
    with socket.socket() as silent, socket.socket() as closed:
        silent.bind(("127.0.0.1", 0))
        silent.listen()  # takes connections and never answers
        closed.bind(("127.0.0.1", 0))
        dead = {
            name: f"http://127.0.0.1:{one.getsockname()[1]}" for name, one in (("silent", silent), ("closed", closed))
        }
        backends = {name: {"url": url} for name, url in {**dead, "good": serve(VLLM)}.items()}
        routes = [{"model": name, "backend": name} for name in backends]
        result = run("--json", config={"backends": backends, "routes": routes})
    assert result.exit_code == 1
    assert level(findings(result, "backend silent"), "did not give its list of models") == "problem"
    assert level(findings(result, "backend closed"), "cannot be reached") == "problem"
    assert level(findings(result, "backend good"), "as vLLM 0.11.2") == "ok"
    assert json.loads(result.stdout)["problems"] == 2


ODD_ROUTE = {"model": "m", "upstream_model": "quen", "options": {"decoding": {"constrain": "required"}}}
SAID_ONLY = {**VLLM, "/v1/chat/completions": completion("stop", content="I am ready.")}
UNKNOWN = {"/v1/models": {"data": [{"id": "qwen"}]}, "/v1/chat/completions": CALL}


@every(
    ("paths", "more", "said", "how"),
    [
        ({"/v1/models": 401}, {}, "refused the gateway's key", "problem"),
        ({"/v1/models": "<html>Welcome</html>"}, {}, "gave no list of models", "problem"),
        ({"/v1/models": 503}, {}, "answered 503", "problem"),
        (SAID_ONLY, {}, "it did not call the tool (`mode: prompt`)", "warning"),
        (SAID_ONLY, {"defaults": {"mode": "native"}}, "it did not call the tool", "problem"),
        (UNKNOWN, {"routes": [{**ODD_ROUTE, "options": {}}]}, 'requests "quen" from it, which it does not', "warning"),
        (UNKNOWN, {"routes": [ODD_ROUTE]}, "`constrain: required`, but the server has no known feature", "problem"),
    ],
)
def test_a_server_that_is_no_good(run: Run, serve: Serve, paths: Paths, more: Any, said: str, how: str) -> None:
    url = serve(paths).replace("//", "//ada:secret-pw@")
    result = run("--json", config={"backends": {"gpu": {"url": url}}, **more})
    assert level(findings(result, "backend gpu"), said) == how
    assert result.exit_code == (how == "problem")
    assert "secret" not in result.output


def test_a_server_that_repeats_secrets(run: Run, serve: Serve) -> None:
    """Not as a name, and not in what it refuses a tool with."""
    url = serve({"/v1/models": {"data": [{"id": "qwen"}, {"id": "secret-key"}]}, "/v1/chat/completions": 400})
    result = run("--json", config={"backends": {"gpu": {"url": url, "headers": {"X-Token": "secret-key"}}}})
    assert level(findings(result, "backend gpu"), "no result") == "warning"
    assert "secret-key" not in result.output


@every(("hours", "said"), [(2, "ahead of"), (-2, "behind")])
def test_a_clock_that_is_wrong(run: Run, serve: Serve, hours: int, said: str) -> None:
    url = serve(VLLM, clock=timedelta(hours=hours))
    found = findings(run("--json", "--no-probe", config={"backends": {"gpu": {"url": url}}}), "backend gpu")
    assert level(found, f"s {said} the clock of this machine") == "warning"


@every(
    ("days", "trusted", "said", "how"),
    [
        (400, True, "valid for 400 more days", "ok"),
        (3, True, "expires in 3 days", "warning"),
        (-3, True, "is not trusted: certificate has expired", "problem"),
        (400, False, "is not trusted: self-signed certificate", "problem"),
    ],
)
def test_certificates(run: Run, serve: Serve, tmp_path: Path, days: int, trusted: bool, said: str, how: str) -> None:
    context, file = self_signed(tmp_path, days=days)
    url = serve(VLLM, tls=context)
    env = {"SSL_CERT_FILE": str(file) if trusted else ""}
    result = run("--json", "--no-probe", config={"backends": {"gpu": {"url": url}}}, env=env)
    assert level(findings(result, "backend gpu"), said) == how
    assert (result.exit_code == 1) == (how == "problem")
    unchecked = run("--json", "--no-probe", config={"backends": {"gpu": {"url": url, "verify_tls": False}}}, env=env)
    assert level(findings(unchecked, "backend gpu"), "is not checked") == "warning"
    assert unchecked.exit_code == 0


def test_backends_of_other_kinds(run: Run) -> None:
    backends = {"m": {"kind": "mock"}, "c": {"kind": "codex_app_server", "command": ["/bin/false"]}}
    routes = [{"model": name, "backend": name} for name in backends]
    result = run("--json", config={"backends": backends, "routes": routes})
    assert level(findings(result, "backend m"), "It answers, as a backend of the kind 'mock'") == "ok"
    assert "problem" in {one["level"] for one in findings(result, "backend c").values()}


def test_a_redis_that_is_away(run: Run) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        store = {"kind": "redis", "url": f"redis://ada:secret-pw@{address}/0"}
        limits = {"url": f"redis://{address}/1", "per_key": {"concurrent": 1}}
        result = run("--json", config={**MOCK, "store": store, "rate_limits": limits})
    found = findings(result, "stores")
    assert level(found, f"Redis at {address}, with the conversations, cannot be used") == "problem"
    assert level(found, f"Redis at {address}, with the rate limits, cannot be used") == "problem"
    assert "secret-pw" not in result.output


def test_a_redis_that_answers(run: Run, redis_server: RedisServer) -> None:
    result = run("--json", config={**MOCK, "store": {"kind": "redis", "url": redis_server.url}})
    assert level(findings(result, "stores"), "with the conversations, answers and can be written") == "ok"


def test_a_redis_that_is_full(run: Run, own_server: RedisServer) -> None:
    """It answers a PING, and refuses what is stored."""
    own_server.start()
    url, limits = own_server.url, {"per_key": {"concurrent": 1}}
    asyncio.run(own_server.ask(("CONFIG", "SET", "maxmemory", 1)))
    config = {**MOCK, "store": {"kind": "redis", "url": url}, "rate_limits": {"url": url, **limits}}
    found = findings(run("--json", config=config), "stores")
    for what in ("conversations", "rate limits"):
        assert level(found, f"with the {what}, cannot be used: the Redis server is out of memory.") == "problem"


# --- configuration, machine, files ----------------------------------------------------------------------------------


def test_mistakes_are_problems_and_the_rest_is_looked_at(run: Run, serve: Serve) -> None:
    backends = {"gpu": {"url": serve(VLLM)}, "bad": {"url": "nowhere"}}
    config = {"backends": backends, "serverr": {}, "routes": [{"model": n, "backend": n} for n in backends]}
    result = run("--json", "--no-probe", config=config)
    assert result.exit_code == 1
    found = findings(result, "configuration")
    assert level(found, "serverr: unknown key") == "problem"
    assert level(found, "backends.bad.url: expected an address") == "problem"
    assert level(findings(result, "backend gpu"), "as vLLM") == "ok"
    assert level(findings(result, "backend bad"), "was not checked") == "warning"


def test_a_file_that_cannot_be_read(run: Run) -> None:
    result = run("nothing.yaml", "--json")
    assert result.exit_code == 1
    assert level(findings(result, "configuration"), "nothing.yaml: No such file") == "problem"
    assert level(findings(result, "installation"), "toolwire ") == "ok"


def test_a_port_that_is_taken(run: Run, serve: Serve) -> None:
    other = int(serve({}).rpartition(":")[2])
    itself = int(serve({"/version": {"version": "9.9", "scanner": "compiled"}}).rpartition(":")[2])
    public = {"host": "203.0.113.9", "insecure_public": True, "port": itself}
    for server, said, how in (
        ({"port": other}, f"Cannot listen on 127.0.0.1 port {other}", "problem"),
        ({"port": itself}, "by a running gateway, toolwire 9.9", "ok"),
        (public, "Cannot listen on 203.0.113.9", "problem"),
    ):
        result = run("--json", config={**MOCK, "server": server})
        assert level(findings(result, "machine"), said) == how


def test_what_the_machine_has_too_little_of(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolwire.extras.doctor.machine, "_memory_there", lambda: 1024)
    backends = {"m": {"kind": "mock", "pool": {"connections": 10**9}}}
    config = {"backends": backends, "server": {"port": 0, "workers": 1000}, "limits": {"connections": 10**9}}
    found = findings(run("--json", config=config), "machine")
    assert level(found, "workers for") == "warning"
    assert level(found, "of memory are free, and 1000 busy worker(s) may use") == "warning"
    if "Any number of" not in str(found):
        assert level(found, "files may be open at once: room for about") == "warning"
        config["limits"] = {"connections": 1}
        assert level(findings(run("--json", config=config), "machine"), "(`pool.connections`)") == "warning"


def test_proxies_that_nobody_asks(run: Run) -> None:
    elsewhere = {"url": "http://192.0.2.1:9", "timeouts": {"connect_s": 1}}
    here = {"url": "http://127.0.0.1:9", "trust_env": True}
    env = {"HTTP_PROXY": "http://ada:secret@127.0.0.1:9"}
    for gpu, said in (
        (elsewhere, "HTTP_PROXY is set, but not used for the backend(s) gpu"),
        (here, "reached through the proxy of HTTP_PROXY"),
    ):
        result = run("--json", "--no-probe", config={"backends": {"gpu": gpu}}, env=env)
        assert level(findings(result, "machine"), said) == "warning"
        assert "secret" not in result.output


@pytest.mark.skipif(os.name != "posix", reason="needs permissions of POSIX")
def test_files_that_others_can_read_or_write(run: Run, tmp_path: Path) -> None:
    tool, captures, keys = tmp_path / "tools" / "ok.py", tmp_path / "captures", tmp_path / "keys"
    tool.parent.mkdir()
    tool.write_text("TOOLS = 5\n")
    tool.chmod(0o666)
    captures.mkdir()
    captures.chmod(0o755)
    keys.write_text("some-key-of-somebody\n")
    keys.chmod(0o644)
    config = {
        **MOCK,
        "tools": {"folder": "tools"},
        "capture": {"keep": 1, "folder": "captures"},
        "auth": {"keys": ["key-in-the-file"], "keys_file": "keys"},
    }
    result = run("--json", config=config)
    found = findings(result, "files")
    assert level(found, f"Everybody on this machine can write to {tool}") == "problem"
    for said in (f"{captures}", f"{keys}, `auth.keys_file`"):
        assert level(found, f"Everybody on this machine can read {said}") == "warning"
    assert level(found, "can read c.yaml, the configuration") == "warning"
    assert level(findings(result, "tools"), "ok.py: TypeError") == "problem"
    assert "key-in-the-file" not in result.output
    for path, mode in ((tool, 0o644), (captures, 0o700), (keys, 0o600), (tmp_path / "c.yaml", 0o600)):
        path.chmod(mode)
    tool.write_text("TOOLS = []\n")
    found = findings(CliRunner().invoke(main, ["doctor", "c.yaml", "--json"]), "files")
    assert {one["level"] for one in found.values()} == {"ok"}


def test_a_folder_that_offers_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    module = tmp_path / "tools" / "greet.py"
    module.write_text("def greet(name): return 'hi'\n")
    config = {**MOCK, "tools": {"folder": "tools"}}
    assert level(findings(run("--json", config=config), "tools"), "1 module(s), 0 tool(s)") == "warning"
    tool = function("greet")
    module.write_text(f"TOOLS = [{tool!r}]\ndef handle_tool_call(name, values): return 'hi'\n")
    assert level(findings(run("--json", config=config), "tools"), "1 module(s), 1 tool(s)") == "ok"


def test_keys_from_variables_are_in_no_file(run: Run, tmp_path: Path) -> None:
    Path("c.yaml").write_text(
        "server: {port: 0}\nbackends:\n  m:\n    kind: mock\n    api_key: ${SOME_KEY}\nauth:\n  keys:\n  - ${SOME_KEY}\n"
        f"  - sha256:{'0' * 64}\n"
    )
    Path("c.yaml").chmod(0o644)
    result = CliRunner().invoke(main, ["doctor", "c.yaml", "--json"], env={"SOME_KEY": "very-secret"})
    assert "the configuration" not in str(findings(result, "files"))
    assert "very-secret" not in result.output


# --- the scanner, and what people see -------------------------------------------------------------------------------


def test_the_scanner_in_python(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.extras.doctor.installation.IMPLEMENTATION", "python")
    found = findings(run("--json", config=MOCK), "installation")
    assert level(found, "The compiled scanner is not in use") == "warning"


def test_what_people_see(run: Run) -> None:
    result = run("--no-probe", config={"backends": {"gpu": {"url": "http://127.0.0.1:9"}}})
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    problem, why, todo = lines[lines.index("backend gpu") + 1 :][:3]
    reached = 'Backend "gpu": The model server cannot be reached. It was contacted at http://'
    assert problem.startswith(f"  problem  {reached}")
    assert why.startswith("           Why it matters: ")
    assert todo.startswith("           What to do: ")
    assert lines[-1].startswith("1 problem, ")


def test_a_server_without_a_list_of_models_is_another_address(run: Run, serve: Serve) -> None:
    found = findings(run("--json", "--no-probe", "--backend", serve({})), "backend default")
    (said,) = (one for what, one in found.items() if "answered 404" in what)
    assert "`url`" in said["todo"]
    assert "`health_path`" in said["todo"]


def test_what_is_to_be_done_about_several_stands_once(run: Run) -> None:
    lines = run("--no-probe", config={"backends": {"m": {"kind": "mock", "a": 1, "b": 2}}}).stdout.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["configuration", "problem", "problem", "Why", "What"]


def test_wrong_use(run: Run) -> None:
    for args in ((), ("--nothing",), ("--timeout", "0", "--backend", "http://127.0.0.1:9")):
        assert run(*args).exit_code == 2, args
