"""Middlewares that ship beside the default chain: found by name, documented, absent unless asked for."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.cases import every
from toolwire.config import MiddlewareConfig
from toolwire.configuration.settings import load
from toolwire.registry import OPTIONAL, registries
from toolwire.startup.names import check_names
from toolwire.support.conversion import ConfigError, to_mapping

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference" / "middleware.md"


@every("name", OPTIONAL)
def test_the_reference_has_every_option_with_its_default(name):
    section = REFERENCE.read_text("utf-8").partition(f"### `{name}`\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    shown = dict(re.findall(r"^- `(\w+)` \(`(.*?)`\): ", section, re.MULTILINE))
    options = registries().middlewares.get(name).Options
    for option in dataclasses.fields(options):
        default = option.default if option.default is not dataclasses.MISSING else option.default_factory()
        plain = to_mapping(default)
        text = plain if isinstance(plain, str) else orjson.dumps(plain).decode()
        assert option.name in shown, f"{REFERENCE.name} has no `- `{option.name}` (`{text}`): ` below `### {name}`"
        assert shown.pop(option.name).replace(" ", "") == text.replace(" ", ""), option.name
    assert shown == {}


def test_what_is_not_asked_for_is_not_even_imported():
    program = (
        "import sys; from toolwire.app import create_app; create_app({'backends': {'m': {'kind': 'mock'}}});"
        "print([name for name in sys.modules if name in sys.argv[1:]])"
    )
    modules = [*(f"toolwire.extras.middlewares.{name}" for name in OPTIONAL), "toolwire.support.patterns", "re2"]
    done = subprocess.run(
        [sys.executable, "-c", program, *modules], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout.strip() == "[]"


def test_without_its_package_redact_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    config = load(None, env={}, overrides={"backends": {"m": {"kind": "mock"}}})
    with pytest.raises(ConfigError, match=re.escape("pip install 'toolwire[redact]'")):
        check_names(dataclasses.replace(config, chain=(MiddlewareConfig(use="redact"), *config.chain)), registries())
