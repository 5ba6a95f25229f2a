"""Identifies a model server from its own answers: pure functions that return an `Identity`.

Rules:

1. All answers are untrusted data. Names and versions are bounded in length and number, and a value that has not the
   engine's shape is ignored.
2. `owned_by` in the model list is a hint; the engine's own path gives proof and details. Without a hint the proof must
   be unmistakable, since servers answer unknown paths with anything, some with status 200.

The shapes are those of the engines' servers: llama.cpp `/props`, vLLM `/version`, SGLang `/get_model_info` and
`/server_info`, Ollama `/api/version`, `/api/tags` and `/api/ps`, LM Studio `/api/v0/models`, TGI `/info`. Routers such
as smg pass `/get_model_info` on to a server behind them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

MOST_NAMES: Final = 1000
"""Maximum number of model names that are used per server."""

NAME_CHARS: Final = 256
"""A longer name is ignored."""

_VERSION: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,39}", re.ASCII)

ENGINES: Final[Mapping[str, str]] = {
    "llamacpp": "llama.cpp",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "ollama": "Ollama",
    "lmstudio": "LM Studio",
    "tgi": "Text Generation Inference",
    "transformers": "transformers serve",
    "toolwire": "another toolwire",
}
"""The engines that are recognised, with their display names."""

_OWNERS: Final[Mapping[str, str]] = {
    "llamacpp": "llamacpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "library": "ollama",
    "organization_owner": "lmstudio",
    "toolwire": "toolwire",
}
"""Maps `owned_by` of a listed model to the engine."""

_TRANSFORMERS_FIELDS: Final = frozenset({"id", "object", "created", "owned_by", "status"})

_STRANGERS: Final = frozenset({"openai", "openai-internal", "system", "anthropic", "google", "mistralai", "koboldcpp"})
"""`owned_by` of services that have none of the engines' paths."""


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model of a server.

    `names`: further names that show its family (of its file, of the original model). `context`: in tokens. `by_name`:
    it answers only requests that name it, like an adapter, or a model that is on disk but not loaded.
    """

    name: str
    names: tuple[str, ...] = ()
    context: int | None = None
    by_name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The identity of a server: its engine and its models. `engine` is a key of `ENGINES`; None if it is unknown.

    `any_name`: its model answers under any name. `images`: whether it accepts images; None if unknown. `template`: the
    chat template of its only model, if known.
    """

    engine: str | None = None
    version: str | None = None
    models: tuple[ServedModel, ...] = ()
    any_name: bool = False
    images: bool | None = None
    template: str | None = None

    @property
    def sole(self) -> ServedModel | None:
        """The only model, or None if there are several. A model with several names counts as one."""
        able = [served for served in self.models if not served.by_name]
        origins = {served.names for served in able}
        return able[0] if len(able) == 1 or (len(origins) == 1 and origins != {()}) else None

    def find(self, name: str) -> ServedModel | None:
        """Returns the model that answers to `name`: the one with this name, else the only one, else None."""
        return next((served for served in self.models if served.name == name), None) or self.sole


@dataclass(frozen=True, slots=True)
class Probe:
    """A path of one engine's server. `read` returns the known identity extended by the answer, or None if the answer is
    not that engine's."""

    engine: str
    path: str
    read: Callable[[Any, Identity], Identity | None]


# --- the list of models ---------------------------------------------------------------------------------------------


def read_listed(listed: Any) -> Identity:
    """Returns the identity by a model list: the models, and the engine by `owned_by`."""
    entries = listed.get("data") if isinstance(listed, dict) else listed
    models = [entry for entry in entries or () if isinstance(entry, dict) and _name(entry.get("id"))][:MOST_NAMES]
    owners = {owner for entry in models if isinstance(owner := entry.get("owned_by"), str)}
    engines = {_OWNERS.get(owner) for owner in owners}
    engine = engines.pop() if len(engines) == 1 else "ollama" if "library" in owners else None
    if engine is None and models and all(map(_is_transformers, models)):
        engine = "transformers"
    return Identity(engine=engine, models=tuple(map(_served, models)))


def _is_transformers(entry: Mapping[str, Any]) -> bool:
    """True if a list entry has the fields of `transformers serve`. It has no path that identifies it, but no other
    server uses exactly these fields."""
    status = entry.get("status")
    return entry.keys() == _TRANSFORMERS_FIELDS and isinstance(status, dict) and isinstance(status.get("value"), str)


def is_stranger(listed: Any) -> bool:
    """True if a model list comes from a service that has no paths to probe."""
    entries = listed.get("data") if isinstance(listed, dict) else listed
    owners = {entry.get("owned_by") for entry in entries or () if isinstance(entry, dict)}
    return bool(owners) and all(isinstance(owner, str) and owner in _STRANGERS for owner in owners)


def _served(entry: Mapping[str, Any]) -> ServedModel:
    meta = entry.get("meta")
    context = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
    root = _base(entry.get("root"))
    # In vLLM's and SGLang's lists an adapter names its base model as `parent`.
    return ServedModel(
        entry["id"], (root,) if root else (), _count(context), by_name=isinstance(entry.get("parent"), str)
    )


# --- the engines' own paths -----------------------------------------------------------------------------------------


def _props(answer: Any, known: Identity) -> Identity | None:
    """llama.cpp. A router has several models, selected by name."""
    if not isinstance(answer, dict) or not isinstance(answer.get("default_generation_settings"), dict):
        return None
    router = answer.get("role") == "router"
    if not router and _count(answer.get("total_slots")) is None:
        return None
    models = known.models
    path, alias = _base(answer.get("model_path")), _name(answer.get("model_alias"))
    if not models and not router and (alias or path):
        models = (ServedModel(alias or path),)
    template = answer.get("chat_template")
    if len(models) == 1 and not router:
        context = _count(answer["default_generation_settings"].get("n_ctx")) or models[0].context
        further = tuple(dict.fromkeys((*models[0].names, *((path,) if path else ()))))
        models = (ServedModel(models[0].name, further, context),)
    modalities = answer.get("modalities")
    vision = modalities.get("vision") if isinstance(modalities, dict) else None
    return Identity(
        engine="llamacpp",
        version=_version(answer.get("build_info")),
        models=models,
        any_name=not router and len(models) == 1,
        images=vision if isinstance(vision, bool) and not router else None,
        template=template if isinstance(template, str) and not router else None,
    )


def _version_of_vllm(answer: Any, known: Identity) -> Identity | None:
    """vLLM. Many services have a `/version`, so it only counts if the model list says that the server is vLLM."""
    if known.engine != "vllm" or not isinstance(answer, dict):
        return None
    return replace(known, version=_version(answer.get("version")))


def _model_info(answer: Any, known: Identity) -> Identity | None:
    if not isinstance(answer, dict) or not isinstance(answer.get("is_generation"), bool):
        return None
    path = _base(answer.get("model_path"))
    if not path:
        return None
    models = known.models or (ServedModel(path),)
    if len(models) == 1:
        models = (replace(models[0], names=tuple(dict.fromkeys((*models[0].names, path)))),)
    images = answer.get("has_image_understanding")
    return replace(known, engine="sglang", models=models, images=images if isinstance(images, bool) else None)


def _server_info(answer: Any, known: Identity) -> Identity | None:
    """SGLang. Its model list has the context as well, but not that of a router in front of it."""
    if known.engine != "sglang" or not isinstance(answer, dict):
        return None
    context = _count(answer.get("context_length"))
    models = tuple(replace(one, context=one.context or context) for one in known.models)
    return replace(known, version=_version(answer.get("version")), models=models)


def _ollama_version(answer: Any, known: Identity) -> Identity | None:
    if known.engine != "ollama" or not isinstance(answer, dict) or not isinstance(answer.get("version"), str):
        return None
    return replace(known, version=_version(answer["version"]))


def _tags(answer: Any, known: Identity) -> Identity | None:
    """Ollama. llama.cpp and others have this path too, but without digests."""
    listed = answer.get("models") if isinstance(answer, dict) and "data" not in answer else None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) and entry.get("digest") for entry in listed):
        return None
    if not listed and known.engine != "ollama":
        return None
    names = [name for entry in listed[:MOST_NAMES] if (name := _name(entry.get("name")))]
    return replace(known, engine="ollama", models=known.models or tuple(map(ServedModel, names)))


def _running(answer: Any, known: Identity) -> Identity | None:
    """Ollama: the loaded models, with the context of each."""
    listed = answer.get("models") if isinstance(answer, dict) else None
    if known.engine != "ollama" or not isinstance(listed, list):
        return None
    contexts = {entry.get("name"): _count(entry.get("context_length")) for entry in listed if isinstance(entry, dict)}
    models = tuple(replace(one, context=contexts.get(one.name) or one.context) for one in known.models)
    return replace(known, models=models)


def _loaded(answer: Any, known: Identity) -> Identity | None:
    """LM Studio lists all models on disk. The loaded ones are served; if none is loaded, all are, because it loads on
    demand."""
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list) or not listed:
        return None
    if not all(
        isinstance(e, dict) and isinstance(e.get("state"), str) and isinstance(e.get("type"), str) for e in listed
    ):
        return None
    able = [entry for entry in listed[:MOST_NAMES] if entry["type"] in ("llm", "vlm") and _name(entry.get("id"))]
    loaded = [entry for entry in able if entry["state"] == "loaded"]
    if len(loaded) == 1:
        context = loaded[0].get("loaded_context_length") or loaded[0].get("max_context_length")
        models: tuple[ServedModel, ...] = (ServedModel(loaded[0]["id"], (), _count(context)),)
        rest = (ServedModel(entry["id"], by_name=True) for entry in able if entry is not loaded[0])
        return replace(known, engine="lmstudio", models=(*models, *rest))
    return replace(known, engine="lmstudio", models=tuple(ServedModel(entry["id"]) for entry in able))


def _info(answer: Any, known: Identity) -> Identity | None:
    if not isinstance(answer, dict):
        return None
    name = _name(answer.get("model_id"))
    if not name or not (
        answer.get("router") == "text-generation-router" or _count(answer.get("max_total_tokens")) is not None
    ):
        return None
    served = ServedModel(
        known.models[0].name if len(known.models) == 1 else name, (name,), _count(answer.get("max_total_tokens"))
    )
    return Identity(engine="tgi", version=_version(answer.get("version")), models=(served,), any_name=True)


PROBES: Final = (
    Probe("llamacpp", "props", _props),
    Probe("vllm", "version", _version_of_vllm),
    Probe("sglang", "get_model_info", _model_info),
    Probe("sglang", "server_info", _server_info),
    Probe("ollama", "api/tags", _tags),
    Probe("ollama", "api/version", _ollama_version),
    Probe("ollama", "api/ps", _running),
    Probe("lmstudio", "api/v0/models", _loaded),
    Probe("tgi", "info", _info),
)
"""All probes; their answers are read in this order."""


def probes_for(known: Identity) -> tuple[Probe, ...]:
    """Returns the probes for a server with this identity by its model list: those of its engine, or all if the engine
    is unknown."""
    return PROBES if known.engine is None else tuple(probe for probe in PROBES if probe.engine == known.engine)


# --- values ---------------------------------------------------------------------------------------------------------


def _name(value: Any) -> str:
    return value if isinstance(value, str) and 0 < len(value) <= NAME_CHARS else ""


def _base(value: Any) -> str:
    """Returns the last component of a path or of a repository's name; empty if that is no valid name."""
    if not isinstance(value, str) or len(value) > 4096:
        return ""
    return _name(re.split(r"[/\\]", value.rstrip("/\\"))[-1])


def _version(value: Any) -> str | None:
    return value if isinstance(value, str) and _VERSION.fullmatch(value) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 10**12 else None
