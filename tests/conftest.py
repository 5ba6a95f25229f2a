"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long an example takes says more about the machine than about the code. In CI hypothesis loads a profile of its own, which
# says the same and draws the same examples every time.
settings.register_profile(
    "toolwire",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toolwire")
