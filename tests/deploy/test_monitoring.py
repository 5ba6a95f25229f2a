"""The dashboard, the alerts, and what the chart tells the Prometheus operator: all is about metrics that exist."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.chart import Chart, Failed
from tests.e2e.conftest import USER, function, post, serving, upstream_config
from toolwire.testing import Refuse, Say, Upstream

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "helm" / "toolwire"
CHART = Chart(FOLDER)
SCHEMA = jsonschema.Draft7Validator(json.loads((FOLDER / "values.schema.json").read_text("utf-8")))
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
KEYS = {"keys": {"existingSecret": "clients"}}
WATCHED = {
    **KEYS,
    "serviceMonitor": {
        "enabled": True,
        "interval": "1m30s",
        "labels": {"release": "prom"},
        "key": {"existingSecret": "k"},
    },
    "prometheusRule": {"enabled": True, "labels": {"release": "prom"}},
}

# --- the chart --------------------------------------------------------------------------------------------------------


def test_what_the_operator_gets_has_its_form() -> None:
    """The names of fields are those of monitoring.coreos.com/v1."""
    made = CHART.render(WATCHED)
    SCHEMA.validate(CHART.dot(WATCHED)["Values"])
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert kind not in CHART.render(KEYS), "a cluster without the operator does not know it"
        assert made[kind]["apiVersion"] == "monitoring.coreos.com/v1"
        assert made[kind]["metadata"]["labels"]["release"] == "prom"
    assert set(made["ServiceMonitor"]["spec"]) == {"endpoints", "selector"}
    assert set(made["ServiceMonitor"]["spec"]["endpoints"][0]) == {"port", "path", "interval", "authorization"}
    (group,) = made["PrometheusRule"]["spec"]["groups"]
    assert set(group) == {"name", "rules"}
    assert all(set(rule) <= {"alert", "expr", "for", "labels", "annotations"} for rule in group["rules"])


def test_the_monitor_finds_the_service_and_shows_a_key() -> None:
    made = CHART.render(WATCHED)
    spec, service = made["ServiceMonitor"]["spec"], made["Service"]
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "1m30s")
    assert endpoint["authorization"]["credentials"] == {"name": "k", "key": "key"}


def test_a_monitor_without_a_key_would_get_401() -> None:
    with pytest.raises(Failed, match=r"serviceMonitor\.key\.existingSecret"):
        CHART.render({**KEYS, "serviceMonitor": {"enabled": True}})


@pytest.mark.parametrize(
    "wrong", [{"interval": "often"}, {"interval": 30}, {"on": True}, {"labels": {"a": 1}}], ids=str
)
def test_helm_refuses_wrong_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(CHART.dot({**KEYS, "serviceMonitor": wrong})["Values"])


def test_the_rule_has_the_alerts_of_the_file() -> None:
    alerts = yaml.safe_load((ROOT / "deploy" / "helm" / "toolwire" / "alerts.yml").read_text("utf-8"))
    assert CHART.render(WATCHED)["PrometheusRule"]["spec"] == alerts


def test_an_alert_says_how_bad_it_is_and_what_to_do() -> None:
    text = (ROOT / "docs" / "how-to" / "observe.md").read_text("utf-8")
    headings = {heading.lower() for heading in re.findall(r"^### (\w+)$", text, re.MULTILINE)}
    for rule in CHART.render(WATCHED)["PrometheusRule"]["spec"]["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "https://toolwire.github.io/toolwire/how-to/observe/"
        assert anchor in headings


# --- what is asked ----------------------------------------------------------------------------------------------------


def expressions() -> Iterator[tuple[str, str]]:
    """Every question, and who asks it."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found is not None
            yield variable["name"], f"sum by ({found[2]}) ({found[1]})"
    for rule in CHART.render(WATCHED)["PrometheusRule"]["spec"]["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]


SERIES = re.compile(r"\b(toolwire_\w+)(?:\{([^}]*)\})?")
BY = re.compile(r"\bby \(([^)]*)\)")


@pytest.fixture(scope="module")
def page() -> dict[str, set[str]]:
    """Of a gateway that served one of each: a call, a mended one, a block that was none, a stream, a failure, a refusal
    by a limit. Labels of every series by its name."""
    return asyncio.run(served())


async def served() -> dict[str, set[str]]:
    call = '<tool_call>{{"name": "f", "arguments": {}}}</tool_call>'
    texts = [
        call.format('{"n": 1}'),
        call.format('{"n": "1"}'),
        call.format('{"n": 1,}'),
        "<tool_call>{broken</tool_call>",
    ]
    tools = [function("f", n="integer")]
    async with Upstream([*map(Say, texts), Say("fine"), Refuse(500)]) as upstream:
        config = upstream_config(
            upstream.url,
            backend={"identify_s": 0},
            defaults={"format": "hermes", "bad_answers": {"reask": 0}, "retry": {"attempts": 1}},
            rate_limits={"per_key": {"requests_per_min": 6}},
        )
        async with serving(config) as server, aiohttp.ClientSession() as session:
            for number in range(7):
                await post(server, {"messages": USER, "tools": tools, "stream": number % 2 == 1})
            await (await session.get(server.make_url("/ready"))).read()
            text = await (await session.get(server.make_url("/metrics"))).text()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize(("who", "expression"), [*expressions()], ids=lambda value: str(value)[:40])
def test_what_is_asked_exists(page: dict[str, set[str]], who: str, expression: str) -> None:
    names = SERIES.findall(expression)
    assert names, who
    have: set[str] = set()
    for name, selectors in names:
        assert name in page, f"{who}: nothing on the page is called {name}"
        have |= page[name]
        asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        assert asked <= page[name], f"{who}: {name} has no label {asked - page[name]}"
    for labels in BY.findall(expression):
        assert {label.strip() for label in labels.split(",")} <= have, f"{who}: {labels}"


def test_the_dashboard_hangs_together() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "no panel covers another"
    assert max(x for x, _ in cells) < 24
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(panels)))
    assert used == variables
    for panel in panels:
        for target in panel["targets"]:
            wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            grouped = {label.strip() for labels in BY.findall(target["expr"]) for label in labels.split(",")}
            assert wanted <= grouped, panel["title"]
