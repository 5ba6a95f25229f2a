"""One text, three clients: whatever a model writes means the same over Chat, Responses and Messages, streamed and whole (R1.2, R1.3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxy.config import GatewayConfig
from proxy.testing import WireAnswer, run_chain
from tests.e2e.agent import block
from tests.protocols.messages_wires import accumulate

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
