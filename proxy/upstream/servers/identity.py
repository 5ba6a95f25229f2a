"""What a model server says it is: pure functions from its answers to an `Identity`.

Rules:

1. What a server says is data. Names and versions are bounded, so is their number, and what has not the shape that the
   engine's server gives says nothing.
2. `owned_by` in the list of models is a hint, and the engine's own path the proof and the detail. A proof without a
   hint has to be unmistakable: servers answer paths that they do not know with anything, some with status 200.

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
"""Names of one server that are kept."""

NAME_CHARS: Final = 256
"""A longer name is none."""

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
"""What is told apart, and how it is called."""

_OWNERS: Final[Mapping[str, str]] = {
    "llamacpp": "llamacpp",
    "vllm": "vllm",
    "sglang": "sglang",
    "library": "ollama",
    "organization_owner": "lmstudio",
    "toolwire": "toolwire",
}
"""`owned_by` of an engine's models."""

_TRANSFORMERS_FIELDS: Final = frozenset({"id", "object", "created", "owned_by", "status"})

_STRANGERS: Final = frozenset({"openai", "openai-internal", "system", "anthropic", "google", "mistralai", "koboldcpp"})
"""`owned_by` of servers that have none of these paths."""


@dataclass(frozen=True, slots=True)
class Served:
    """One model of a server. `names` are further ones that tell of its family: the file's, the original model's.
    `context`: tokens. `by_name`: only for whoever asks for it by its name, as an adapter, or what is on the disk and
    not loaded."""

    name: str
    names: tuple[str, ...] = ()
    context: int | None = None
    by_name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a server is and serves. `engine` is a key of `ENGINES`, None: it is none that is known.

    `any_name`: its model answers under any name. `images`: whether it takes them, if it says. `template` is the chat
    template of the only model, if it is known.
    """

    engine: str | None = None
    version: str | None = None
    models: tuple[Served, ...] = ()
    any_name: bool = False
    images: bool | None = None
    template: str | None = None

    @property
    def sole(self) -> Served | None:
        """The model, if there is just one; one model under several names is one."""
        able = [served for served in self.models if not served.by_name]
        origins = {served.names for served in able}
        return able[0] if len(able) == 1 or (len(origins) == 1 and origins != {()}) else None

    def find(self, name: str) -> Served | None:
        """The model that answers to this name: the one that is called so, else the only one."""
        return next((served for served in self.models if served.name == name), None) or self.sole


@dataclass(frozen=True, slots=True)
class Probe:
    """A path that one engine's server has. `read` gives what its answer says beyond what is known, None if it is not
    that engine's."""

    engine: str
    path: str
    read: Callable[[Any, Identity], Identity | None]


# --- the list of models ---------------------------------------------------------------------------------------------


def read_listed(listed: Any) -> Identity:
    """What a list of models says: the names, and by `owned_by` whose server it is."""
    entries = listed.get("data") if isinstance(listed, dict) else listed
    models = [entry for entry in entries or () if isinstance(entry, dict) and _name(entry.get("id"))][:MOST_NAMES]
    owners = {owner for entry in models if isinstance(owner := entry.get("owned_by"), str)}
    engines = {_OWNERS.get(owner) for owner in owners}
    engine = engines.pop() if len(engines) == 1 else "ollama" if "library" in owners else None
    if engine is None and models and all(map(_is_transformers, models)):
        engine = "transformers"
    return Identity(engine=engine, models=tuple(map(_served, models)))


def _is_transformers(entry: Mapping[str, Any]) -> bool:
    """Whether `transformers serve` lists a model so. It has no path of its own that says what it is, but no other
    server says with these fields, and no further ones, whether a model is loaded."""
    status = entry.get("status")
    return entry.keys() == _TRANSFORMERS_FIELDS and isinstance(status, dict) and isinstance(status.get("value"), str)


def is_stranger(listed: Any) -> bool:
    """Whether a list of models is that of a service which has no path to ask."""
    entries = listed.get("data") if isinstance(listed, dict) else listed
    owners = {entry.get("owned_by") for entry in entries or () if isinstance(entry, dict)}
    return bool(owners) and all(isinstance(owner, str) and owner in _STRANGERS for owner in owners)


def _served(entry: Mapping[str, Any]) -> Served:
    meta = entry.get("meta")
    context = entry.get("max_model_len") or (meta.get("n_ctx") if isinstance(meta, dict) else None)
    root = _base(entry.get("root"))
    # vLLM's and SGLang's adapters name the model that they stand on.
    return Served(entry["id"], (root,) if root else (), _count(context), by_name=isinstance(entry.get("parent"), str))


# --- the engines' own paths -----------------------------------------------------------------------------------------


def _props(said: Any, known: Identity) -> Identity | None:
    """llama.cpp. A router has several models, which it tells apart by name."""
    if not isinstance(said, dict) or not isinstance(said.get("default_generation_settings"), dict):
        return None
    router = said.get("role") == "router"
    if not router and _count(said.get("total_slots")) is None:
        return None
    models = known.models
    path, alias = _base(said.get("model_path")), _name(said.get("model_alias"))
    if not models and not router and (alias or path):
        models = (Served(alias or path),)
    template = said.get("chat_template")
    if len(models) == 1 and not router:
        context = _count(said["default_generation_settings"].get("n_ctx")) or models[0].context
        further = tuple(dict.fromkeys((*models[0].names, *((path,) if path else ()))))
        models = (Served(models[0].name, further, context),)
    modalities = said.get("modalities")
    vision = modalities.get("vision") if isinstance(modalities, dict) else None
    return Identity(
        engine="llamacpp",
        version=_version(said.get("build_info")),
        models=models,
        any_name=not router and len(models) == 1,
        images=vision if isinstance(vision, bool) and not router else None,
        template=template if isinstance(template, str) and not router else None,
    )


def _version_of_vllm(said: Any, known: Identity) -> Identity | None:
    """Half of all services have a `/version`: only with vLLM's list of models, which says whose it is, it is vLLM."""
    if known.engine != "vllm" or not isinstance(said, dict):
        return None
    return replace(known, version=_version(said.get("version")))


def _model_info(said: Any, known: Identity) -> Identity | None:
    if not isinstance(said, dict) or not isinstance(said.get("is_generation"), bool):
        return None
    path = _base(said.get("model_path"))
    if not path:
        return None
    models = known.models or (Served(path),)
    if len(models) == 1:
        models = (replace(models[0], names=tuple(dict.fromkeys((*models[0].names, path)))),)
    images = said.get("has_image_understanding")
    return replace(known, engine="sglang", models=models, images=images if isinstance(images, bool) else None)


def _server_info(said: Any, known: Identity) -> Identity | None:
    """SGLang. The list of models says its context as well, but not that of a router in front of it."""
    if known.engine != "sglang" or not isinstance(said, dict):
        return None
    context = _count(said.get("context_length"))
    models = tuple(replace(one, context=one.context or context) for one in known.models)
    return replace(known, version=_version(said.get("version")), models=models)


def _ollama_version(said: Any, known: Identity) -> Identity | None:
    if known.engine != "ollama" or not isinstance(said, dict) or not isinstance(said.get("version"), str):
        return None
    return replace(known, version=_version(said["version"]))


def _tags(said: Any, known: Identity) -> Identity | None:
    """Ollama. llama.cpp and others have the path as well, with no or with empty digests."""
    listed = said.get("models") if isinstance(said, dict) and "data" not in said else None
    if not isinstance(listed, list) or not all(isinstance(entry, dict) and entry.get("digest") for entry in listed):
        return None
    if not listed and known.engine != "ollama":
        return None
    names = [name for entry in listed[:MOST_NAMES] if (name := _name(entry.get("name")))]
    return replace(known, engine="ollama", models=known.models or tuple(map(Served, names)))


def _running(said: Any, known: Identity) -> Identity | None:
    """Ollama: models that are loaded, with the context that each was given."""
    listed = said.get("models") if isinstance(said, dict) else None
    if known.engine != "ollama" or not isinstance(listed, list):
        return None
    contexts = {entry.get("name"): _count(entry.get("context_length")) for entry in listed if isinstance(entry, dict)}
    models = tuple(replace(one, context=contexts.get(one.name) or one.context) for one in known.models)
    return replace(known, models=models)


def _loaded(said: Any, known: Identity) -> Identity | None:
    """LM Studio lists all that is on the disk. What is loaded is served; if nothing is, all of it, since it loads what
    is asked for."""
    listed = said.get("data") if isinstance(said, dict) else None
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
        models: tuple[Served, ...] = (Served(loaded[0]["id"], (), _count(context)),)
        rest = (Served(entry["id"], by_name=True) for entry in able if entry is not loaded[0])
        return replace(known, engine="lmstudio", models=(*models, *rest))
    return replace(known, engine="lmstudio", models=tuple(Served(entry["id"]) for entry in able))


def _info(said: Any, known: Identity) -> Identity | None:
    if not isinstance(said, dict):
        return None
    name = _name(said.get("model_id"))
    if not name or not (
        said.get("router") == "text-generation-router" or _count(said.get("max_total_tokens")) is not None
    ):
        return None
    served = Served(
        known.models[0].name if len(known.models) == 1 else name, (name,), _count(said.get("max_total_tokens"))
    )
    return Identity(engine="tgi", version=_version(said.get("version")), models=(served,), any_name=True)


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
"""In this order the answers are looked at."""


def probes_for(known: Identity) -> tuple[Probe, ...]:
    """What to ask a server whose list said this: its engine's own paths, or all of them if it gave no hint."""
    return PROBES if known.engine is None else tuple(probe for probe in PROBES if probe.engine == known.engine)


# --- values ---------------------------------------------------------------------------------------------------------


def _name(value: Any) -> str:
    return value if isinstance(value, str) and 0 < len(value) <= NAME_CHARS else ""


def _base(value: Any) -> str:
    """The last component of a path or of a repository's name."""
    if not isinstance(value, str) or len(value) > 4096:
        return ""
    return _name(re.split(r"[/\\]", value.rstrip("/\\"))[-1])


def _version(value: Any) -> str | None:
    return value if isinstance(value, str) and _VERSION.fullmatch(value) else None


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 10**12 else None
