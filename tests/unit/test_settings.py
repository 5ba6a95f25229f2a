"""Loading the configuration: file, environment, flags, and what is said about mistakes."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import jsonschema
import pytest

from tests.cases import every
from toolwire.config import (
    BackendConfig,
    GatewayConfig,
    KeyConfig,
    MiddlewareConfig,
    RouteOptions,
)
from toolwire.configuration.checks import effective_routes, is_loopback
from toolwire.configuration.config_schema import schema
from toolwire.configuration.settings import load
from toolwire.formats.engine.words import COMMON
from toolwire.registry import registries
from toolwire.startup.description import describe
from toolwire.support.conversion import ConfigError, to_mapping
from toolwire.support.plainyaml import parse_yaml

BACKEND = "backends: {main: {url: 'http://127.0.0.1:1/v1'}}\n"
Loader = Callable[..., GatewayConfig]


@pytest.fixture
def loaded(tmp_path: Path) -> Loader:
    """Load YAML text, with a backend unless the text has its own."""

    def load_text(
        text: str = "", env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None
    ) -> GatewayConfig:
        path = tmp_path / "toolwire.yaml"
        text = dedent(text)
        path.write_text(text if "backends:" in text else BACKEND + text, "utf-8")
        return load(path, env or {}, overrides)

    return load_text


def problems(call: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        call()
    return caught.value.problems


# --- YAML -----------------------------------------------------------------------------------------------------------


@every(
    ("text", "value"),
    [
        *((text, text) for text in ("off", "no", "1:30", "010", "2026-01-31")),
        *(("true", True), ("False", False), ("~", None), ("", None)),
        *(("32_000", 32000), ("0x1f", 31), ("-5", -5), ("1e3", 1000.0), ("-.5", -0.5)),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_yaml_scalars_mean_what_people_mean(text: str, value: Any) -> None:
    parsed = parse_yaml(text)
    assert parsed == value
    assert type(parsed) is type(value)


@every(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "line 3, column 1: key 'a' occurs twice"),
        ("a: 1\n---\nb: 2", "line 2, column 1: expected a single document in the stream, but found another document"),
        ("a: [", "line 1, column 5: while parsing a flow node, expected the node content"),
        ("!!python/object/apply:os.getcwd []", "line 1, column 1: could not determine a constructor"),
    ],
)
def test_bad_yaml_says_where(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)


# --- sources and their order ----------------------------------------------------------------------------------------


def test_an_address_is_enough() -> None:
    """R17.3."""
    config = load(None, {}, {"backends.default.url": "http://127.0.0.1:9/v1"})
    assert config == GatewayConfig(backends={"default": BackendConfig(url="http://127.0.0.1:9/v1")})
    (route,) = effective_routes(config)
    assert (route.model, route.backend) == ("*", "default")


def test_environment_beats_file_and_flags_beat_environment(loaded: Loader) -> None:
    text = "server: {port: 1, host: localhost, log_level: debug}"
    env = {"TOOLWIRE_SERVER__PORT": "2", "TOOLWIRE_SERVER__HOST": "127.0.0.1"}
    server = loaded(text, env, {"server.port": 3, "server.workers": None}).server
    assert (server.port, server.host, server.log_level, server.workers) == (3, "127.0.0.1", "debug", 1)
    others = {"TOOLWIRE_NO_EXTENSIONS": "1", "TOOLWIRE_CONFIG": "x", "PATH": "y"}
    assert loaded("", others) == loaded(""), "other variables mean nothing"


@every(
    ("name", "value", "path", "expected"),
    [
        ("SERVER", "{port: 5}", "server.port", 5),
        ("SERVER__INSECURE_PUBLIC", "1", "server.insecure_public", True),
        ("LIMITS__BODY_BYTES", "1_000", "limits.body_bytes", 1000),
        ("AUTH__KEYS", "[a, b]", "auth.keys", (KeyConfig(key="a"), KeyConfig(key="b"))),
        ("AUTH__KEYS", "[{key: a, tokens_per_min: 5}]", "auth.keys", (KeyConfig(key="a", tokens_per_min=5),)),
        ("AUTH__KEYS", "007", "auth.keys", (KeyConfig(key="007"),)),
        ("BACKENDS__MAIN__URL", "http://x:1", "backends.main.url", "http://x:1"),
        ("BACKENDS__MAIN__TIMEOUTS__TOTAL_S", "null", "backends.main.timeouts.total_s", None),
        ("BACKENDS__MAIN__HEADERS", "{X-A: b}", "backends.main.headers", {"X-A": "b"}),
        ("DEFAULTS__PROMPT__PLACEMENT", "user", "defaults.prompt.placement", "user"),
        ("ROUTES__0__MODEL", "abc", "routes.0.model", "abc"),
        ("ROUTES__0__MODEL", "abc", "routes.0.backend", "main"),  # the only one
        ("ROUTES", "[{model: x}, {model: y}]", "routes.1.model", "y"),
        ("CHAIN", "[forwarding]", "chain", (MiddlewareConfig(use="forwarding"),)),
        ("CHAIN__0", "forwarding", "chain", (MiddlewareConfig(use="forwarding"),)),
    ],
)
def test_every_key_has_a_variable(loaded: Loader, name: str, value: str, path: str, expected: Any) -> None:
    found: Any = loaded("", {f"TOOLWIRE_{name}": value})
    for part in path.split("."):
        match found:
            case tuple():
                found = found[int(part)]
            case dict():
                found = found[part]
            case _:
                found = getattr(found, part)
    assert found == expected


def test_variables_change_parts_of_what_the_file_says(loaded: Loader) -> None:
    env = {
        "BACKENDS__MY_GPU__URL": "http://b",
        "BACKENDS__MY_GPU__HEADERS__X_TEAM": "b",
        "ROUTES__1__UPSTREAM_MODEL": "c",
        "ROUTES__2__MODEL": "d",
        "SERVER": "{port: 1}",
        "SERVER__HOST": "localhost",
    }
    config = loaded(
        "backends: {my-gpu: {url: http://a, headers: {X-Team: a}}}\nroutes: [{model: a}, {model: b}]",
        {f"TOOLWIRE_{name}": value for name, value in env.items()},
    )
    backend = config.backends["my-gpu"]
    assert (backend.url, backend.headers) == ("http://b", {"X-Team": "b"})
    assert [(r.model, r.upstream_model) for r in config.routes] == [("a", None), ("b", "c"), ("d", None)]
    assert {r.backend for r in config.routes} == {"my-gpu"}
    assert (config.server.port, config.server.host) == (1, "localhost")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SERVR__PORT", "1", "servr: unknown key, did you mean 'server'? (from TOOLWIRE_SERVR__PORT)"),
        ("SERVER__PORTS", "1", "server.ports: unknown key, did you mean 'port'? (from TOOLWIRE_SERVER__PORTS)"),
        ("SERVER__PORT", "x", 'server.port: expected an integer, got "x" (from TOOLWIRE_SERVER__PORT)'),
        ("SERVER__WORKERS", "0", "server.workers: expected 1 to 1024, got 0 (from TOOLWIRE_SERVER__WORKERS)"),
        (
            "SERVER__INSECURE_PUBLIC",
            "maybe",
            'server.insecure_public: expected true or false, got "maybe" (from TOOLWIRE_',
        ),
        ("DEFAULTS__PROMPT", "5", 'defaults.prompt: expected a mapping, got "5" (from TOOLWIRE_DEFAULTS__PROMPT)'),
        (
            "DEFAULTS__PROMPT",
            "[",
            "defaults.prompt: not valid YAML (from TOOLWIRE_DEFAULTS__PROMPT): line 1, column 2: ",
        ),
        (
            "BACKENDS",
            "{a: {url: x}}",
            "backends.a.url: expected an address such as 'http://127.0.0.1:8000/v1' (from TOOLWIRE_BACKENDS)",
        ),
        ("ROUTES__2__MODEL", "x", "TOOLWIRE_ROUTES__2__MODEL: '2' is not an index from 0 to 1"),
        ("ZZZ__X", "1", "zzz: unknown key; known: "),
        ("SERVER", "[", "TOOLWIRE_SERVER: not valid YAML: line 1, column 2"),
        ("SERVER__PORT__X", "1", "TOOLWIRE_SERVER__PORT__X: 'port' is neither a mapping nor a list, so it has no 'x'"),
    ],
)
def test_mistakes_in_variables(loaded: Loader, name: str, value: str, problem: str) -> None:
    env = {f"TOOLWIRE_{name}": value}
    (found,) = problems(lambda: loaded("server: {port: 1}\nroutes: [{model: a}]", env))
    assert found.startswith(problem)


def test_star_in_an_override_is_the_only_entry_or_default(loaded: Loader) -> None:
    flags = {"backends.*.url": "http://new:1"}
    assert loaded("backends: {main: {url: http://old}}", {}, flags).backends["main"].url == "http://new:1"
    several = "backends: {a: {url: http://a}, default: {url: http://old}}"
    assert loaded(several, {}, flags).backends["default"].url == "http://new:1"
    assert load(None, {}, flags).backends["default"].url == "http://new:1"


# --- ${...} ---------------------------------------------------------------------------------------------------------


def test_expansion_gives_the_type_that_is_wanted(loaded: Loader) -> None:
    text = "server: {port: '${PORT:-8081}', insecure_public: '${PUBLIC}', host: 'local${REST}'}"
    server = loaded(text, {"PUBLIC": "true", "REST": "host", "PORT": ""}).server
    assert (server.port, server.insecure_public, server.host) == (8081, True, "localhost")
    optional = "backends: {main: {url: http://x, api_key: '${KEY:-}'}}"
    assert loaded(optional).backends["main"].api_key is None
    assert loaded(optional, {"KEY": "12345"}).backends["main"].api_key == "12345"
    assert loaded("defaults: {prompt: {examples: '$${A} $B ${1} $'}}").defaults.prompt.examples == "${A} $B ${1} $"


def test_missing_variables_are_named_with_the_key(loaded: Loader) -> None:
    text = "backends: {main: {url: '${U}', headers: {X: '${V}'}}}\nroutes: [{model: '${W}'}]"
    assert problems(lambda: loaded(text)) == (
        "backends.main.url: the variable U is not set; a default is written ${U:-default}",
        "backends.main.headers.X: the variable V is not set; a default is written ${V:-default}",
        "routes[0].model: the variable W is not set; a default is written ${W:-default}",
    )


@every(
    ("text", "problem"),
    [
        ("server: {port: '${X}'}", 'server.port: expected an integer, got "x" (from the file\'s ${X})'),
        ("defaults: {prompt: '${X}'}", 'defaults.prompt: expected a mapping, got "x" (from the file\'s ${X})'),
        ("server: {ports: '${X}'}", "server.ports: unknown key, did you mean 'port'? (from the file's ${X})"),
    ],
)
def test_mistakes_in_expansions_show_what_was_written(loaded: Loader, text: str, problem: str) -> None:
    (found,) = problems(lambda: loaded(text, {"X": "x"}))
    assert found.startswith(problem)


# --- routes, defaults, chains ---------------------------------------------------------------------------------------


def test_routes_override_single_keys_of_the_defaults(loaded: Loader) -> None:
    config = loaded(
        """
        defaults: {format: hermes, calls: {repair: off}, prompt: {placement: user, examples: E}, reasoning: {tags: null}}
        routes:
          - {model: a}
          - {model: b, options: {format: bare_json, prompt: {placement: prepend}}}
          - {model: c, options: {prompt: null}}
        """
    )
    defaults = config.defaults
    assert (defaults.format, defaults.calls.repair, defaults.reasoning.tags) == ("hermes", "off", None)
    a, b, c = (route.options for route in config.routes)
    assert a == c == defaults
    prompt = dataclasses.replace(defaults.prompt, placement="prepend")
    assert b == dataclasses.replace(defaults, format="bare_json", prompt=prompt)


def test_the_servers_of_a_route(loaded: Loader) -> None:
    """`backends` replaces `backend`, whose default names a server that the route then does not use."""
    config = loaded("""
        backends: {default: {kind: openai_completions, url: http://a}, b: {url: http://b}, c: {url: http://c}}
        defaults: {mode: native}
        routes: [{model: one, backends: [b], fallback: [c]}, {model: two, backend: c}]
    """)
    servers = [[server.backend for server in route.servers] for route in config.routes]
    assert servers == [["b", "c"], ["c"]]
    assert [[server.backend for server in route.members] for route in config.routes] == [["b"], ["c"]]


def test_relative_paths_in_the_file_count_from_its_folder(loaded: Loader, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("secret\n")
    (tmp_path / "s.yaml").write_text("[hi]")
    (tmp_path / "t.txt").write_text(COMMON)
    config = loaded(
        "backends: {m: {kind: mock, script: s.yaml}}\nauth: {keys_file: keys}\n"
        "routes: [{options: {prompt: {template_file: t.txt}}}]",
        {"TOOLWIRE_DEFAULTS__PROMPT__TEMPLATE_FILE": str(tmp_path / "t.txt")},
    )
    assert config.auth.keys_file == str(tmp_path / "keys")
    assert config.routes[0].options.prompt.template_file == str(tmp_path / "t.txt")
    assert config.backends["m"].script == str(tmp_path / "s.yaml")


# --- mistakes -------------------------------------------------------------------------------------------------------


@every(
    ("name", "expected"),
    [
        ("none.yaml", "{folder}/none.yaml: No such file or directory"),
        ("latin.yaml", "utf-8"),
        ("list.yaml", "expected a mapping with keys such as 'backends', got a list"),
        ("loop.yaml", "nested too deeply"),
        ("empty.yaml", "backends: at least one is needed, such as {main: {url: 'http://127.0.0.1:8000/v1'}}"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"\xff")
    (tmp_path / "list.yaml").write_bytes(b"[]")
    (tmp_path / "loop.yaml").write_bytes(b"a: &a {b: *a}")
    (tmp_path / "empty.yaml").write_bytes(b"backends: {}")
    (found,) = problems(lambda: load(tmp_path / name, {}))
    assert expected.replace("{folder}", str(tmp_path)) in found


@pytest.mark.parametrize(
    ("host", "private"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "[::1]", "LOCALHOST")),
        *((host, False) for host in ("0.0.0.0", "::", "", "10.0.0.1", "gateway.local")),
    ],
)
def test_a_public_address_needs_a_key(loaded: Loader, host: str, private: bool) -> None:
    assert is_loopback(host) is private
    text = f"server: {{host: '{host}'}}"
    hashed = "sha256:" + hashlib.sha256(b"k").hexdigest()
    assert loaded(f"{text}\nauth: {{keys: ['{hashed}']}}").server.host == host
    assert loaded(text, {}, {"server.insecure_public": True}).server.host == host
    if private:
        assert loaded(text).server.host == host
    else:
        assert re.match(r"server.host: .* no key is set", problems(lambda: loaded(text))[0])
        assert problems(lambda: loaded(f"{text}\nauth: {{keys: ['${{K:-}}']}}"))  # an empty key is no key


def test_a_secret_is_never_quoted(loaded: Loader) -> None:
    text = "backends: {m: {url: 'ftp://u:hunter2@x', headers: {A: [hunter2]}}}\nauth: {keys: {a: hunter2}}"
    assert "hunter2" not in "\n".join(problems(lambda: loaded(text)))
    config = loaded("backends: {m: {url: 'http://u:hunter2@x:1/v1', api_key: hunter2}}\nauth: {keys: [hunter2]}")
    assert "hunter2" not in describe(config, registries())


# --- the shipped schema ---------------------------------------------------------------------------------------------


@cache
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


@every(
    ("text", "fine"),
    [
        ("server:\nbackends: {m: {url: x, images: true}}\nchain: [a, {use: b, options: {c: d}}]", True),
        ("server: {port: '${PORT:-1}', log_level: '${LEVEL}'}", True),
        ("defaults: {reasoning: {tags: [a, b]}, prompt: {template_file: null}, calls: {repair: off}}", True),
        ("defaults: {reasoning: {tags: null}}\nserver: {keepalive_s: 1}\nauth: {keys: [a, {key: b}]}", True),
        ("server: {port: '1'}", False),
        ("server: {port: 65536}", False),
        ("server: {prt: 1}", False),
        ("chain: [{options: {}}]", False),
        ("routes: [{options: {mode: magic}}]", False),
        ("defaults: {reasoning: {tags: [a]}}", False),
    ],
)
def test_the_schema_agrees_with_the_loader(loaded: Loader, text: str, fine: bool) -> None:
    assert validator().is_valid(parse_yaml(text)) is fine
    if fine:
        loaded(text.replace("url: x", "url: http://x"), {"LEVEL": "info"})
    else:
        assert problems(lambda: loaded(text))


def test_defaults_in_the_schema_are_the_real_ones() -> None:
    properties = schema()["$defs"]["RouteOptions"]["properties"]
    plain_values = to_mapping(RouteOptions())
    assert {name: p["default"] for name, p in properties.items() if "default" in p} == {
        name: value for name, value in plain_values.items() if not isinstance(value, dict)
    }


@every(
    ("key", "meant"),
    [
        *(("recognize", "calls.recognise"), ("repair", "calls.repair")),
        *(("max_iteration", "tool_loop.max_iterations"), ("call", "calls")),
    ],
)
def test_a_key_that_is_nearly_right_is_named_with_its_section(key: str, meant: str) -> None:
    tree = {"backends": {"m": {"kind": "mock"}}, "defaults": {key: 1}}
    assert problems(lambda: load(None, {}, tree)) == (f"defaults.{key}: unknown key, did you mean {meant!r}?",)
    assert not validator().is_valid(tree)
