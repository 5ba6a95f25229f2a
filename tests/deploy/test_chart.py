"""The Helm chart: what it makes is valid, and agrees with the gateway's configuration."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.deploy.chart import Chart, Failed, objects
from tests.optional import HELM
from toolwire import __version__
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load
from toolwire.observability.telemetry import Metrics

FOLDER = Path(__file__).parents[2] / "deploy" / "helm" / "toolwire"
CHART = Chart(FOLDER)
KEYS = {"keys": {"existingSecret": "clients"}}
VALUES: dict[str, dict[str, Any]] = {
    "default": KEYS,
    "own secret": {"keys": {"inline": 'one\nsha256:"two"\n'}},
    "scaled": {**KEYS, "autoscaling": {"enabled": True}, "redis": {"existingSecret": "store"}},
    "everything": {
        "keys": {"existingSecret": "clients", "entry": "keys.yaml"},
        "redis": {"existingSecret": "store"},
        "shutdown": {"delaySeconds": 0, "graceSeconds": 600},
        "extraEnv": [{"name": "BACKEND_KEY", "valueFrom": {"secretKeyRef": {"name": "model", "key": "key"}}}],
        "podAnnotations": {"prometheus.io/scrape": "true"},
        "nodeSelector": {"kubernetes.io/arch": "arm64"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "fullnameOverride": "calls",
        "spread": False,
        "image": {"tag": "1.2.3", "pullSecrets": [{"name": "registry"}]},
        "dashboard": {"enabled": True},
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "annotations": {"nginx.ingress.kubernetes.io/proxy-read-timeout": "3600"},
            "host": "calls.example",
            "tlsSecret": "calls-tls",
        },
        "networkPolicy": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}],
            "egress": [{"to": [{"podSelector": {"matchLabels": {"app": "vllm"}}}], "ports": [{"port": 8000}]}],
        },
        "extraVolumes": [{"name": "tools", "configMap": {"name": "tools"}}],
        "extraVolumeMounts": [{"name": "tools", "mountPath": "/tools", "readOnly": True}],
        "config": {"backends": {"main": {"api_key": "${BACKEND_KEY}"}}, "routes": [{"model": "*", "backend": "main"}]},
    },
}
SCHEMA = jsonschema.Draft7Validator(json.loads((FOLDER / "values.schema.json").read_text("utf-8")))
OLDEST, NEWEST = "1.25", kubernetes_validate.latest_version()
BOTH = pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)


@BOTH
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_valid(values, version):
    made = CHART.render(values)
    assert {"Deployment", "Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget"} <= set(made)
    for item in made.values():
        kubernetes_validate.validate(item, version, strict=True)


@BOTH
def test_helm_takes_the_values(values):
    SCHEMA.validate(CHART.dot(values)["Values"])


@pytest.mark.parametrize(
    "wrong",
    [{"replica": 2}, {"keys": {"secret": "s"}}, {"shutdown": {"graceSeconds": "30s"}}, {"service": {"port": 0}}],
    ids=str,
)
def test_helm_refuses_wrong_values(wrong):
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate(CHART.dot({**KEYS, **wrong})["Values"])


def test_the_schema_has_every_value():
    def names(value: Any, schema: Any) -> None:
        if schema.get("additionalProperties") is False:
            assert set(value) == set(schema["properties"]) - {"global"}
            for name, item in value.items():
                names(item, schema["properties"][name])

    names(CHART.values, SCHEMA.schema)


def configuration(made: dict[str, Any], folder: Path) -> GatewayConfig:
    """What a pod's gateway is configured with; variables that come from secrets have a value."""
    container = made["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    env = {item["name"]: item.get("value", "redis://redis:6379/0") for item in container["env"]}
    env.pop("TOOLWIRE_AUTH__KEYS_FILE")
    file = folder / "toolwire.yaml"
    file.write_text(made["ConfigMap"]["data"]["toolwire.yaml"])
    return load(file, env={**env, "TOOLWIRE_AUTH__KEYS": "[k]"})


@BOTH
def test_it_agrees_with_the_configuration(values, tmp_path):
    made = CHART.render(values)
    pod = made["Deployment"]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    config = configuration(made, tmp_path)
    assert config.server.host == "0.0.0.0"
    assert container["ports"] == [{"name": "http", "containerPort": config.server.port, "protocol": "TCP"}]
    assert made["Service"]["spec"]["ports"][0]["targetPort"] == "http"
    for probe, path in {"livenessProbe": "/health", "startupProbe": "/health", "readinessProbe": "/ready"}.items():
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    grace = config.server.shutdown_delay_s + config.server.shutdown_grace_s
    assert pod["terminationGracePeriodSeconds"] >= grace + 10
    shared = "redis://redis:6379/0" if "redis" in values else None
    assert (config.store.kind, config.store.url) == ("redis" if shared else "none", shared)
    assert config.rate_limits.url == shared
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert container["args"] == ["serve", "--config", f"{mounts['config']}/toolwire.yaml"]
    keys_file = next(item["value"] for item in container["env"] if item["name"] == "TOOLWIRE_AUTH__KEYS_FILE")
    assert keys_file == f"{mounts['keys']}/{values['keys'].get('entry', 'keys')}"
    secret = next(volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "keys")
    if "Secret" in made:
        assert (secret, list(made["Secret"]["stringData"])) == (made["Secret"]["metadata"]["name"], ["keys"])
    else:
        assert secret == "clients"


@BOTH
def test_selectors_meet_their_pods(values):
    made = CHART.render(values)
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        made["Deployment"]["spec"]["selector"]["matchLabels"],
        made["Service"]["spec"]["selector"],
        made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()


def test_names_do_not_clash_and_are_not_said_twice():
    def names(values: dict[str, Any], release: str) -> set[str]:
        made = CHART.render({**KEYS, **values}, release)
        assert made["Deployment"]["spec"]["template"]["spec"]["serviceAccountName"] in {
            item["metadata"]["name"] for item in made.values()
        }
        return {item["metadata"]["name"] for item in made.values()}

    assert names({}, "edge") == {"edge-toolwire"}
    assert names({}, "toolwire-eu") == {"toolwire-eu"}
    assert names({"fullnameOverride": "calls"}, "edge") == {"calls"}
    assert all(len(name) <= 63 for name in names({}, "r" * 60))


def test_clients_outside_reach_the_service():
    made = CHART.render(VALUES["everything"])
    service = made["Service"]
    (rule,) = made["Ingress"]["spec"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert (backend["name"], backend["port"]["name"]) == (
        service["metadata"]["name"],
        service["spec"]["ports"][0]["name"],
    )
    assert made["Ingress"]["spec"]["tls"] == [{"hosts": ["calls.example"], "secretName": "calls-tls"}]
    with pytest.raises(Failed, match=r"ingress\.host"):
        CHART.render({**KEYS, "ingress": {"enabled": True}})
    assert {"Ingress", "HTTPRoute", "NetworkPolicy", "Dashboard"}.isdisjoint(CHART.render(KEYS))


def test_a_route_of_the_gateway_api_leads_to_the_service():
    values = {
        **KEYS,
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["calls.example"]},
    }
    SCHEMA.validate(CHART.dot(values)["Values"])
    made = CHART.render(values)
    spec = made["HTTPRoute"]["spec"]
    assert spec["parentRefs"] == [{"name": "public"}]
    assert spec["hostnames"] == ["calls.example"]
    (rule,) = spec["rules"]
    service = made["Service"]
    assert rule["backendRefs"] == [{"name": service["metadata"]["name"], "port": service["spec"]["ports"][0]["port"]}]


def test_a_policy_keeps_names_of_servers_to_be_found():
    policy = CHART.render(VALUES["everything"])["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert {port["port"] for port in policy["egress"][0]["ports"]} == {53}
    open_to_all = CHART.render({**KEYS, "networkPolicy": {"enabled": True}})["NetworkPolicy"]["spec"]
    assert open_to_all["policyTypes"] == ["Ingress"]
    assert "from" not in open_to_all["ingress"][0]


def test_pods_stand_apart_where_they_can():
    spread = CHART.render(KEYS)["Deployment"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [rule["topologyKey"] for rule in spread] == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    assert (
        "topologySpreadConstraints" not in CHART.render(VALUES["everything"])["Deployment"]["spec"]["template"]["spec"]
    )


def test_the_dashboard_is_that_of_the_chart():
    made = CHART.render(VALUES["everything"])["Dashboard"]
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(made["data"]["toolwire.json"])["title"]


def test_pods_are_confined():
    pod = CHART.render(KEYS)["Deployment"]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    confined = pod["containers"][0]["securityContext"]
    assert confined["readOnlyRootFilesystem"] is True
    assert confined["allowPrivilegeEscalation"] is False
    assert confined["capabilities"] == {"drop": ["ALL"]}


def test_without_keys_there_is_no_release():
    with pytest.raises(Failed, match=r"keys\.existingSecret"):
        CHART.render({})


def test_it_scales_on_a_metric_that_exists():
    made = CHART.render(VALUES["scaled"])
    scaler = made["HorizontalPodAutoscaler"]["spec"]
    assert "replicas" not in made["Deployment"]["spec"]
    assert scaler["scaleTargetRef"]["name"] == made["Deployment"]["metadata"]["name"]
    metric = scaler["metrics"][0]["pods"]["metric"]["name"]
    assert f"# TYPE {metric} gauge".encode() in Metrics().page()[0]
    assert CHART.render(KEYS)["Deployment"]["spec"]["replicas"] == 2


def test_another_configuration_means_other_pods():
    def checksum(config: dict[str, Any]) -> str:
        made = CHART.render({**KEYS, "config": config})
        found: str = made["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        return found

    assert checksum({}) == checksum({}) != checksum({"limits": {"tools_max": 1}})


def test_it_is_of_this_version():
    assert CHART.about["appVersion"] == __version__
    image = CHART.render(KEYS)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image == f"toolwire:{__version__}"


def without_checksum(made: dict[str, Any]) -> dict[str, Any]:
    """YAML is written in more than one way, so the checksum of it differs."""
    made["Deployment"]["spec"]["template"]["metadata"]["annotations"].pop("checksum/config")
    made["ConfigMap"]["data"]["toolwire.yaml"] = yaml.safe_load(made["ConfigMap"]["data"]["toolwire.yaml"])
    return made


@pytest.mark.needs(HELM)
@BOTH
def test_helm_reads_the_chart_as_we_do(values, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    subprocess.run(["helm", "lint", "--strict", FOLDER, "--values", file], check=True)
    command = ["helm", "template", "gateway", FOLDER, "--values", file]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    texts = {f"{n}.yaml": text for n, text in enumerate(done.stdout.split("\n---\n"))}
    assert without_checksum(objects(texts)) == without_checksum(CHART.render(values))
