"""Which addresses lead back to the gateway itself."""

import socket

import pytest

from tests.cases import every
from tests.waiting import GUARD_S
from toolwire.config import BackendConfig, GatewayConfig, ServerConfig
from toolwire.startup import backend_loops
from toolwire.startup.backend_loops import loop_mistakes


def refused(host: str, url: str | None, port: int = 8080) -> bool:
    config = GatewayConfig(server=ServerConfig(host=host), backends={"b": BackendConfig(url=url)})
    return bool(loop_mistakes(config, port))


@every("host", ["127.0.0.1", "localhost", "::1", "[::1]", "0.0.0.0", "::", ""])
@every(
    "asked",
    [
        "localhost", "LOCALHOST", "localhost.", "127.0.0.1", "[::1]", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "127.1",
        "me:secret@127.0.0.1", "[0:0:0:0:0:0:0:1]",
    ],
)  # fmt: skip
def test_the_loopback_under_all_its_names(host: str, asked: str) -> None:
    assert refused(host, f"http://{asked}:8080/v1")
    assert not refused(host, f"http://{asked}:8081/v1")


@every(
    ("host", "url", "port", "back"),
    [
        ("127.0.0.1", "http://127.0.0.1", 80, True),
        ("127.0.0.1", "https://127.0.0.1/v1", 443, True),
        ("127.0.0.1", "https://127.0.0.1/v1", 80, False),
        ("127.0.0.1", "http://127.0.0.2:8080", 8080, False),
        ("127.0.0.2", "http://127.0.0.2:8080", 8080, True),
        *((everywhere, "http://127.0.0.3:8080", 8080, True) for everywhere in ("0.0.0.0", "::", "[::]", "*", "")),
        ("0.0.0.0", "http://192.0.2.1:8080", 8080, False),
        ("192.0.2.1", "http://192.0.2.1:8080", 8080, True),
        ("127.0.0.1", "http://192.0.2.1:8080", 8080, False),
        ("127.0.0.1", "http://[not-an-address:8080", 8080, False),
        ("127.0.0.1", "http://127.0.0.1:70000", 8080, False),
        ("127.0.0.1", None, 8080, False),
        ("127.0.0.1", "http://127.0.0.1:8080", 0, False),
    ],
)
def test_other_addresses(host: str, url: str | None, port: int, back: bool) -> None:
    assert refused(host, url, port) is back


def test_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look_up(name: str, *args: object, **more: object) -> list[object]:
        asked.append(name)
        if name == "unknown.example":
            raise socket.gaierror
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert refused("127.0.0.1", "http://own.example:8080")
    assert not refused("127.0.0.1", "http://unknown.example:8080")
    assert not refused("127.0.0.1", "http://elsewhere.example:9090"), "it has another port, so nobody has to know"
    assert asked == ["own.example", "unknown.example"]


def test_a_resolver_that_hangs_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    ended = threading.Event()

    def look_up(*args: object, **more: object) -> list[object]:
        ended.wait(GUARD_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(backend_loops, "LOOKUP_S", 0.01)
    try:
        assert not refused("127.0.0.1", "http://slow.example:8080")
        assert not ended.is_set()
    finally:
        ended.set()


def test_the_mistake_says_where_and_what_to_do() -> None:
    config = GatewayConfig(backends={"gpu": BackendConfig(url="http://me:secret@localhost:8080")})
    (problem,) = loop_mistakes(config, 8080)
    assert problem.startswith(
        "backends.gpu.url: leads back to the gateway itself, which listens on 127.0.0.1 port 8080"
    )
    assert "--port" in problem
    assert "secret" not in problem
