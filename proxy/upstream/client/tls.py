"""TLS towards model servers: whose certificates are taken, and what the log says of others."""

from __future__ import annotations

import logging
import ssl
from typing import Final

LOG: Final = logging.getLogger("toolwire.backends")

_NO_SUCH_NAME: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


def tls_context(*, verify: bool) -> ssl.SSLContext:
    """The system's defaults; without `verify` any certificate is taken. Reads files.

    A server's names are those that its certificate lists as alternative names of its subject (RFC 9110, 4.3.4). Python
    would look into the subject itself where there are none, which nobody who signs certificates has to check.
    """
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def log_untrusted(host: str | None, error: ssl.SSLError) -> None:
    """Say in the log why no connection came about. Clients are not told: it would show them the server's name."""
    why = getattr(error, "verify_message", None) or error.reason or str(error)
    if getattr(error, "verify_code", None) in _NO_SUCH_NAME:
        why += " What counts are the names in its subjectAltName; without that it is good for no name."
    LOG.warning("no TLS connection to %s: %s", host, why)
