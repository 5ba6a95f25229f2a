"""TLS to model servers: which certificates are accepted, and how failures are logged."""

from __future__ import annotations

import logging
import ssl
from typing import Final

from ...errors import BackendFault

LOG: Final = logging.getLogger("toolwire.backends")

_NO_SUCH_NAME: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


def tls_context(*, verify: bool) -> ssl.SSLContext:
    """Returns a context with the system's defaults; without `verify` it accepts any certificate. Reads files.

    Only the subject's alternative names in a certificate count as names of the server (RFC 9110, 4.3.4). Where there
    are none Python would use the common name, which certificate authorities need not check.
    """
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def tls_fault(host: str | None, error: ssl.SSLError) -> BackendFault:
    """Logs why a TLS connection failed, and returns the error for it. Clients do not get the logged text, because it
    contains the server's name."""
    why = getattr(error, "verify_message", None) or error.reason or str(error)
    if getattr(error, "verify_code", None) in _NO_SUCH_NAME:
        why += " What counts are the names in its subjectAltName; without that it is good for no name."
    LOG.warning("no TLS connection to %s: %s", host, why)
    untrusted = isinstance(error, ssl.SSLCertVerificationError)
    said = (
        "The model server's certificate is not trusted." if untrusted else "The model server refuses TLS connections."
    )
    return BackendFault(said, code="upstream_disconnected", transient=True)
