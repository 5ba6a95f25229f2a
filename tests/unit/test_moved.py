"""Keys at former places (docs/adr/0027): they mean what they meant, wherever they stand, and somebody is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

import proxy.server.serving
from proxy.app import CONFIG, create_app
from proxy.cli import main
from proxy.config import MOVED_OPTIONS, GatewayConfig, RouteOptions
from proxy.configuration.config_schema import schema
from proxy.configuration.settings import examine, load
from proxy.support.conversion import ConfigError, hints_of, options_of, to_mapping, without_none

BACKENDS = {"backends": {"m": {"kind": "mock"}}}
LOGGER = "toolwire.configuration"
Place = Callable[[GatewayConfig], RouteOptions]


def other_value(former: str) -> Any:
    """A value of the option that is not its default."""
    section, _, name = MOVED_OPTIONS[former].partition(".")
    default = getattr(getattr(RouteOptions(), section), name)
    members, _ = without_none(hints_of(hints_of(RouteOptions)[section])[name])
    if members[0] is str:
        return "cl100k_base"
    return next(value for value in options_of(members[0]) or (True, False) if value != default)


def nested(path: str, value: Any) -> dict[str, Any]:
    for segment in reversed(path.split(".")):
        value = {segment: value}
    return value


def read(
    tmp_path: Path, tree: Mapping[str, Any], env: Mapping[str, str] | None = None
) -> tuple[GatewayConfig, list[str]]:
    file = tmp_path / "toolwire.yaml"
    file.write_text(yaml.safe_dump({**BACKENDS, **tree}), "utf-8")
    told: list[str] = []
    return load(file, env or {}, warn=told.append), told


def problems(make: Callable[[], object]) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        make()
    return caught.value.problems


@pytest.mark.parametrize("former", MOVED_OPTIONS)
def test_a_former_key_means_the_same_everywhere(former: str, tmp_path: Path) -> None:
    now, value = MOVED_OPTIONS[former], other_value(former)
    word = str(value).lower() if isinstance(value, bool) else str(value)
    wanted, _ = read(tmp_path, {"defaults": nested(now, value)})
    assert wanted != load(None, env={}, overrides=BACKENDS)
    assert read(tmp_path, {"defaults": {former: value}}) == (wanted, [f"`defaults.{former}` is now `defaults.{now}`"])
    variable, present = f"TOOLWIRE_DEFAULTS__{former.upper()}", f"TOOLWIRE_DEFAULTS__{now.replace('.', '__').upper()}"
    assert read(tmp_path, {}, {variable: word}) == (wanted, [f"`{variable}` is now `{present}`"])
    assert read(tmp_path, {}, {"TOOLWIRE_DEFAULTS": yaml.safe_dump({former: value})})[0] == wanted
    assert read(tmp_path, {"defaults": "${D}"}, {"D": yaml.safe_dump({former: value})})[0] == wanted
    assert load(None, env={}, overrides={**BACKENDS, f"defaults.{former}": value}) == wanted
    assert load(None, env={}, overrides={**BACKENDS, "defaults": {former: value}}) == wanted

    routed, _ = read(tmp_path, {"routes": [{"model": "a"}, {"model": "b", "options": nested(now, value)}]})
    routes = [{"model": "a"}, {"model": "b", "options": {former: value}}]
    assert read(tmp_path, {"routes": routes}) == (
        routed,
        [f"`routes[1].options.{former}` is now `routes[1].options.{now}`"],
    )
    given = {"TOOLWIRE_ROUTES__1__OPTIONS__" + former.upper(): word}
    assert read(tmp_path, {"routes": [{"model": "a"}, {"model": "b"}]}, given)[0] == routed
    whole = {"TOOLWIRE_ROUTES__1__OPTIONS": yaml.safe_dump({former: value})}
    assert read(tmp_path, {"routes": [{"model": "a"}, {"model": "b"}]}, whole)[0] == routed
    assert read(tmp_path, {}, {"TOOLWIRE_ROUTES": yaml.safe_dump(routes)})[0] == routed
    assert load(None, env={}, overrides={**BACKENDS, "routes": routes}) == routed


@pytest.mark.parametrize("former", MOVED_OPTIONS)
def test_both_places_at_once_are_a_mistake_that_names_both(former: str, tmp_path: Path) -> None:
    now, value = MOVED_OPTIONS[former], other_value(former)
    both = {former: value, **nested(now, value)}
    for path, tree in (("defaults", {"defaults": both}), ("routes[0].options", {"routes": [{"options": both}]})):
        (said,) = problems(lambda tree=tree: read(tmp_path, tree))  # type: ignore[misc]
        assert said == f"{path}.{former}: is now `{path}.{now}`, and both are given; keep `{path}.{now}`"
    variables = [f"TOOLWIRE_DEFAULTS__{key.upper()}" for key in (former, now.replace(".", "__"))]
    (said,) = problems(lambda: read(tmp_path, {}, dict.fromkeys(variables, str(value).lower())))
    assert all(f"{name}" in said for name in variables)
    (said,) = problems(lambda: load(None, {}, {**BACKENDS, f"defaults.{former}": value, f"defaults.{now}": value}))
    assert said.startswith(f"defaults.{former}: is now `defaults.{now}`, and both")


def test_a_later_source_wins_whichever_places_it_knows(tmp_path: Path) -> None:
    former, present = {"repair": "off"}, {"calls": {"repair": "off"}}
    for tree in (former, present):
        for name in ("TOOLWIRE_DEFAULTS__REPAIR", "TOOLWIRE_DEFAULTS__CALLS__REPAIR"):
            config, _ = read(tmp_path, {"defaults": {**tree, "coerce": "off"}}, {name: "safe"})
            assert (config.defaults.calls.repair, config.defaults.calls.coerce) == ("safe", "off")
            for key in ("defaults.repair", "defaults.calls.repair"):
                won = load(None, {name: "safe"}, {**BACKENDS, key: "off"})
                assert won.defaults.calls.repair == "off"
    # A variable for a section takes the place of it all; one for a key of it is more special.
    env = {"TOOLWIRE_DEFAULTS__CALLS": "{trim: none, repair: safe}", "TOOLWIRE_DEFAULTS__REPAIR": "off"}
    calls = read(tmp_path, {"defaults": {"coerce": "off"}}, env)[0].defaults.calls
    assert (calls.trim, calls.repair, calls.coerce) == ("none", "off", "safe")


def test_a_route_overrides_single_keys_over_both_places(tmp_path: Path) -> None:
    tree = {"defaults": {"calls": {"trim": "none"}, "repair": "off"}, "routes": [{"options": {"coerce": "off"}}]}
    config, told = read(tmp_path, tree)
    calls = config.routes[0].options.calls
    assert (calls.trim, calls.repair, calls.coerce) == ("none", "off", "off")
    assert len(told) == 2


def test_a_mistake_says_where_it_stands(tmp_path: Path) -> None:
    (said,) = problems(lambda: read(tmp_path, {"defaults": {"repair": "saef"}}))
    assert said.startswith("defaults.calls.repair: expected one of")
    assert said.endswith("did you mean 'safe'? (it stands at `defaults.repair`)")
    (said,) = problems(lambda: read(tmp_path, {"routes": [{"options": {"reask": 7}}]}))
    assert said.startswith("routes[0].options.bad_answers.reask: expected")
    assert "(it stands at `routes[0].options.reask`)" in said
    (said,) = problems(lambda: read(tmp_path, {}, {"TOOLWIRE_DEFAULTS__TRIM": "x"}))
    assert "(from TOOLWIRE_DEFAULTS__TRIM)" in said


@pytest.mark.parametrize(
    "tree",
    [
        {"defaults": {"calls": 3, "repair": "off"}},
        {"defaults": ["repair"]},
        {"routes": {"options": {"repair": "off"}}},
        {"routes": ["repair"]},
        {"routes": [{"options": "repair"}]},
        {"routes": "${X}"},
    ],
)
def test_nonsense_is_named_once(tmp_path: Path, tree: Mapping[str, Any]) -> None:
    assert len(problems(lambda: read(tmp_path, tree, {"X": "{ no: ["}))) == 1


def test_an_application_warns_once_and_changes_nothing_of_what_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, LOGGER)
    given = {**BACKENDS, "defaults": {"repair": "off"}, "routes": [{"model": "*", "options": {"trim": "none"}}]}
    before = yaml.safe_dump(given)
    app = create_app(given)
    assert (app[CONFIG].defaults.calls.repair, app[CONFIG].routes[0].options.calls.trim) == ("off", "none")
    assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == [
        "`defaults.repair` is now `defaults.calls.repair`",
        "`routes[0].options.trim` is now `routes[0].options.calls.trim`",
    ]
    assert yaml.safe_dump(given) == before
    caplog.clear()
    load(None, env={}, overrides={**BACKENDS, "defaults": {"calls": {"repair": "off"}}})
    assert not caplog.records


def test_the_schema_takes_former_keys_and_says_that_they_are(tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    properties = schema()["$defs"]["RouteOptions"]["properties"]
    assert {name for name, of in properties.items() if of.get("deprecated")} == MOVED_OPTIONS.keys()
    for former in MOVED_OPTIONS:
        assert validator.is_valid({**BACKENDS, "defaults": {former: other_value(former)}})
        assert not validator.is_valid({**BACKENDS, "defaults": {former: {"no": 1}}})


def test_no_place_is_taken_and_every_place_is_there() -> None:
    options = to_mapping(RouteOptions())
    assert not MOVED_OPTIONS.keys() & options.keys()
    for now in MOVED_OPTIONS.values():
        section, _, name = now.partition(".")
        assert name in options[section]
    assert len(options) <= 13


def test_check_tells(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump({**BACKENDS, "defaults": {"usage_source": "estimate"}}), "utf-8")
    _, mistakes = examine(file, {})
    assert (mistakes.lines, mistakes.moved) == ([], ["`defaults.usage_source` is now `defaults.usage.source`"])


def test_the_command_line_tells_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump({**BACKENDS, "defaults": {"usage_source": "estimate"}}), "utf-8")
    said = "`defaults.usage_source` is now `defaults.usage.source`"
    checked = CliRunner().invoke(main, ["check", str(file)])
    assert checked.exit_code == 0
    assert checked.output.splitlines()[-1] == f"Warning: {said}"

    def serve(config: GatewayConfig, *, load: Callable[[], GatewayConfig], warnings: list[str]) -> int:
        told.extend(warnings)
        return 0

    told: list[str] = []
    monkeypatch.setattr(proxy.server.serving, "serve", serve)
    assert CliRunner().invoke(main, ["serve", "--config", str(file)]).exit_code == 0
    assert told == [said]


def test_a_start_logs_what_was_said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the log was set up as the configuration wants it, also where the start fails then."""
    seen: list[int] = []
    monkeypatch.setattr(proxy.server.serving, "_leads_back", lambda config, port: True)
    monkeypatch.setattr(proxy.server.serving, "set_up_logging", lambda *_: seen.append(len(caplog.records)))
    assert proxy.server.serving.serve(load(None, env={}, overrides=BACKENDS), warnings=["`a` is now `b`"]) == 1
    assert seen == [0]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [("WARNING", "`a` is now `b`")]


@pytest.mark.parametrize(
    ("key", "meant"),
    [("recognize", "calls.recognise"), ("max_iteration", "tool_loop.max_iterations"), ("call", "calls")],
)
def test_a_key_that_is_nearly_right_is_named_with_its_section(tmp_path: Path, key: str, meant: str) -> None:
    (said,) = problems(lambda: read(tmp_path, {"defaults": {key: 1}}))
    assert said == f"defaults.{key}: unknown key, did you mean {meant!r}?"
