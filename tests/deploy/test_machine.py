"""The systemd unit, the container file and the compose example."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.optional import SYSTEMD, SYSTEMD_OFFLINE
from toolwire.cli import main
from toolwire.config import GatewayConfig
from toolwire.configuration.settings import load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "toolwire.service"
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text("utf-8"))
CONTAINERFILE = (DEPLOY / "Containerfile").read_text("utf-8")
LAST_S = 10
"""What the gateway takes at most after delay and grace."""


def unit() -> dict[str, list[str]]:
    """The settings of the unit, all sections together."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text("utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


# --- systemd ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with programs and a user that exist here."""
    text = UNIT.read_text("utf-8").replace("/opt/toolwire/bin/toolwire", sys.executable)
    text = re.sub(r"^(User|Group)=toolwire$", r"\1=root", text, flags=re.MULTILINE)
    path = tmp_path / UNIT.name
    path.write_text(text)
    return path


@pytest.mark.needs(SYSTEMD)
def test_systemd_takes_the_unit(installed):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", installed], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if installed.name in line]
    assert (done.returncode, said) == (0, []), done.stderr


@pytest.mark.needs(SYSTEMD_OFFLINE)
def test_systemd_finds_little_exposed(installed):
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", installed]
    done = subprocess.run(command, capture_output=True, text=True)
    # As root it counts 0.4 more than as a user of its own.
    assert done.returncode == 0, done.stdout


def test_the_unit_agrees_with_its_configuration(tmp_path):
    settings = unit()
    folder = tmp_path / "toolwire"
    shutil.copytree(DEPLOY / "systemd", folder)
    (folder / "keys").write_text("secret\n")
    config = load(folder / "toolwire.yaml", env={})
    server = config.server
    assert settings["Type"] == ["notify"]
    # The default ends all of a unit of which one process was ended for want of memory, a tool server, say.
    assert settings["OOMPolicy"] == ["continue"]
    assert int(settings["TimeoutStopSec"][0]) > server.shutdown_delay_s + server.shutdown_grace_s + LAST_S
    assert config.store.kind == "sqlite"
    assert settings["StateDirectory"] == ["toolwire"]
    _, *arguments = settings["ExecStart"][0].split()
    assert arguments == ["serve", "--config", "/etc/toolwire/toolwire.yaml"]
    _, *checked = settings["ExecReload"][0].split()
    done = CliRunner().invoke(main, [checked[0], str(folder / "toolwire.yaml")])
    assert done.exit_code == 0, done.output


# --- the image --------------------------------------------------------------------------------------------------------


def test_the_image_is_built_of_what_is_there():
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINERFILE, re.MULTILINE)
    kept = {line[1:] for line in (DEPLOY / "Containerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    names = {name.removeprefix("./") for names in copied for name in names.split()}
    assert names == kept
    assert all((ROOT / name).exists() for name in names)
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = pyproject["project"]
    packages = set(pyproject["tool"]["setuptools"]["package-dir"].values())
    assert {name for name in names if (ROOT / name).is_dir()} == packages, "the image has every package, nothing else"
    assert all((ROOT / name / "__init__.py").exists() for name in packages)
    assert re.findall(r"^ARG EXTRAS=(\S+)$", CONTAINERFILE, re.MULTILINE) == ["all"]
    # What the build reads must be copied; setup.py the README, whose links it makes absolute.
    assert {"README.md", *project["license-files"]} <= names


def test_the_image_runs_as_somebody_without_rights():
    stages = CONTAINERFILE.split("\nFROM ")
    user = re.findall(r"^USER (.*)$", stages[-1], re.MULTILINE)
    assert user == ["65532:65532"]
    assert "apt-get" not in stages[-1]
    assert "HEALTHCHECK" in stages[-1]
    assert "/health" in stages[-1]


def test_somebody_reaps_what_tools_leave_behind():
    """What an ended MCP server or a killed tool has started becomes a child of process 1, which must take it away."""
    build, _, last = CONTAINERFILE.rpartition("\nFROM ")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", last, re.MULTILINE)
    assert json.loads(entry) == ["tini", "--", "toolwire"]
    assert "COPY --from=build /usr/bin/tini-static /usr/bin/tini" in last
    assert re.search(r"apt-get install .*\btini\b", build)


# --- compose ----------------------------------------------------------------------------------------------------------


def environment(service: dict[str, Any]) -> dict[str, str]:
    """The variables of a service; those that the caller must set are set."""
    return {name: re.sub(r"\$\{(\w+):\?[^}]*\}", r"\1-is-set", value) for name, value in service["environment"].items()}


def configured(name: str) -> GatewayConfig:
    """What a service of the gateway's image is configured with."""
    service = COMPOSE["services"][name]
    source, target, mode = service["volumes"][0].split(":")
    assert (target, mode) == ("/etc/toolwire/toolwire.yaml", "ro")
    assert f'"{target}"' in CONTAINERFILE
    return load(DEPLOY / "compose" / source, env=environment(service))


def test_compose_agrees_with_the_configurations():
    services = COMPOSE["services"]
    gateway, model = configured("gateway"), configured("model")
    host, _, inside = services["gateway"]["ports"][0].split(":")
    assert (host, int(inside)) == ("127.0.0.1", gateway.server.port)
    assert f"EXPOSE {inside}" in CONTAINERFILE
    assert [key.key for key in gateway.auth.keys] == ["TOOLWIRE_KEY-is-set"]
    assert gateway.backends["main"].url == f"http://model:{model.server.port}"
    assert gateway.store.url == gateway.rate_limits.url == "redis://redis:6379/0"
    grace = gateway.server.shutdown_delay_s + gateway.server.shutdown_grace_s
    assert int(services["gateway"]["stop_grace_period"].removesuffix("s")) > grace + LAST_S
    assert (DEPLOY / "compose" / services["gateway"]["build"]["context"] / "deploy" / "Containerfile").exists()


def test_nobody_but_the_gateway_reaches_the_model_server():
    services = COMPOSE["services"]
    assert [name for name, service in services.items() if "front" in service["networks"]] == ["gateway"]
    assert [name for name, service in services.items() if "ports" in service] == ["gateway"]
    assert COMPOSE["networks"]["back"]["internal"] is True
    assert configured("model").server.insecure_public


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_services_are_confined(name):
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])
    assert set(service["networks"]) <= set(COMPOSE["networks"])
