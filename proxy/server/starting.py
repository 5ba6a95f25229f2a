"""Log messages at the start about problems that an operator would otherwise notice late."""

from __future__ import annotations

import logging
import os
from typing import Final

from ..config import GatewayConfig
from ..configuration.mistakes import Mistakes
from ..configuration.telemetry_variables import unmet_variables
from ..fastparse import IMPLEMENTATION
from ..registry import registries
from ..startup.chains import start_notes
from ..startup.ineffective import ineffective_parts

LOG: Final = logging.getLogger("toolwire.serving")


def log_start_notes(config: GatewayConfig) -> None:
    """Logs notes on the configured middlewares, a missing compiled scanner, and settings that cannot work."""
    if IMPLEMENTATION == "python":
        LOG.warning("%s", SLOW + (SWITCHED_OFF if os.environ.get("TOOLWIRE_NO_EXTENSIONS") else NOT_BUILT))
    plugins = registries()
    for line in start_notes(config, plugins):
        LOG.info("%s", line)
    for line in unmet_variables(config.telemetry, os.environ):
        LOG.warning("%s", line)
    for line in ineffective_parts(config, plugins, Mistakes()):
        LOG.warning("this cannot work: %s", line)


SLOW: Final = "the compiled scanner is not in use: the one in Python looks for calls, and costs many times the CPU. "
SWITCHED_OFF: Final = "TOOLWIRE_NO_EXTENSIONS switches it off: unset it."
NOT_BUILT: Final = (
    "There was no compiler when toolwire was installed. Install one and Python's headers (Debian: apt-get install gcc python3-dev),"
    " then: pip install --force-reinstall --no-deps --no-cache-dir --no-binary toolwire toolwire"
)
