"""Settings for all tests."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, is_dataclass

from hypothesis import HealthCheck, settings

from proxy import model

# How long an example takes says more about the machine than about the code. In CI hypothesis loads a profile of its own, which
# says the same and draws the same examples every time.
settings.register_profile(
    "toolwire",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("toolwire")


def _write_once(value: object, name: str, field: object) -> None:
    if hasattr(value, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r} of {type(value).__name__}")
    object.__setattr__(value, name, field)


# The model's classes are frozen for the type checker only (docs/adr/0018). In tests they are really: fields are written once.
for _class in vars(model).values():
    if isinstance(_class, type) and is_dataclass(_class):
        setattr(_class, "__setattr__", _write_once)  # noqa: B010
