"""Capabilities of the well-known model servers (R10.2, C4).

A preset is a default: every key in the backend's configuration overrides it. `generic` is the cautious one, for an
unknown server. Without a configured preset, that of the engine that the server reports is used
(`toolwire.upstream.servers.identity`, docs/adr/0021).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from ...config import BackendConfig
from .base import Capabilities
from .identity import Identity

AUTO: Final = "auto"
"""No preset is configured: the server is asked."""

GENERIC: Final = "generic"
"""The preset for an unknown server."""

OPENAI_HOST: Final = "api.openai.com"
"""The server at this host need not be asked."""
HOSTS: Final[Mapping[str, str]] = {OPENAI_HOST: "openai", "api.anthropic.com": "anthropic"}
"""Presets of servers that are known by their host."""

_REFUSES_SYSTEM: Final = re.compile(r"raise_exception\(\s*['\"][^'\"]*(?i:system|only user)")
"""Matches a chat template that raises an error for system messages, or for their position."""

GRAMMAR_CONSTRAINTS: Final = frozenset({"gbnf", "guided", "ebnf"})
"""Features that take a grammar of the whole answer, so calls in any format can be enforced."""

SCHEMA_CONSTRAINTS: Final = frozenset({"json_schema", "format"})
"""Features that take a JSON Schema. The whole answer becomes one JSON value, so they only suit a format of bare JSON
calls."""

TAG_CONSTRAINTS: Final = frozenset({"guided_tag", "structural_tag"})
"""Features that take a structural tag: text is free, and only the part after an opener is enforced."""

CONSTRAINTS: Final = GRAMMAR_CONSTRAINTS | SCHEMA_CONSTRAINTS | TAG_CONSTRAINTS | {"none"}

FREE_GRAMMARS: Final = frozenset({"gbnf"})
"""Features whose grammar can also constrain `tool_choice: auto`, as a grammar of the whole answer. The others use
structural tags for that."""

PROVEN: Final = FREE_GRAMMARS | TAG_CONSTRAINTS | {"guided", "ebnf"}
"""Features whose constraint for `tool_choice: auto` was tested with the real engine; for these it is on by default
(R23.2, R32.2). llama.cpp follows the grammar, vLLM 0.32 and SGLang 0.5.23 follow structural tags
(docs/reference/engines.md)."""


LEAVES_TEXT: Final = frozenset({"vllm", "llamacpp"})
"""Engines that write tools into the prompt under `tool_choice: none` and return the model's text unchanged. Recorded
with vLLM 0.32 and llama.cpp with jinja (R31.1)."""

ANY_NUMBER: Final = 1_000_000
"""Stands for any number of stop sequences: more than any client sends."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Fields of the published Chat Completions API that the request model does not have.
_OPENAI: Final = _names(
    "logit_bias logprobs top_logprobs user store metadata service_tier verbosity prediction modalities audio"
    " web_search_options prompt_cache_key prompt_cache_retention safety_identifier"
)

# Sampling and template fields of vLLM's and SGLang's chat request classes, as their servers declare them.
_ENGINE: Final = _names(
    "top_k min_p min_tokens repetition_penalty stop_token_ids ignore_eos skip_special_tokens"
    " chat_template_kwargs continue_final_message logit_bias logprobs top_logprobs user priority cache_salt"
)

PRESETS: Final[Mapping[str, Capabilities]] = MappingProxyType(
    {
        GENERIC: Capabilities(),
        "openai": Capabilities(
            developer_role=True,
            late_system=True,
            images=True,
            files=True,
            short_names=True,
            multiple_choices=True,
            reasoning_effort=True,
            max_tokens_field="max_completion_tokens",
            reasoning_history="none",
            extra_parameters=_OPENAI,
            tool_types=_names("function custom"),
            client_tools=True,
        ),
        "anthropic": Capabilities(images=True, client_tools=True),
        # docs.vllm.ai, "Structured Outputs": `structured_outputs: {"grammar": ...}`; the `guided_*` fields were removed
        # in v0.12. Grammars are read by xgrammar, which takes GBNF.
        "vllm": Capabilities(
            reasoning_history="reasoning",
            stop_sequences=4,  # version 0.32 refuses more
            names_stop=True,
            images=True,
            multiple_choices=True,
            reasoning_effort=True,
            constrain="guided",
            continuation=True,
            special_tokens=True,
            extra_parameters=_ENGINE
            | _names(
                "length_penalty include_stop_str_in_output spaces_between_special_tokens truncate_prompt_tokens"
                " prompt_logprobs allowed_token_ids bad_words add_generation_prompt add_special_tokens documents"
                " chat_template mm_processor_kwargs structured_outputs return_tokens_as_token_ids return_token_ids"
                " kv_transfer_params vllm_xargs include_reasoning thinking_token_budget"
            ),
        ),
        # docs.sglang.io, "Structured Outputs": one of `json_schema`, `regex`, `ebnf`; xgrammar reads GBNF.
        "sglang": Capabilities(
            stop_sequences=ANY_NUMBER,
            names_stop=True,
            images=True,
            multiple_choices=True,
            reasoning_effort=True,
            constrain="ebnf",
            continuation=True,
            special_tokens=True,
            template_choice="auto",  # with `none` it omits the tools from the prompt
            extra_parameters=_ENGINE
            | _names(
                "regex ebnf stop_regex no_stop_trim lora_path session_params separate_reasoning stream_reasoning"
                " return_hidden_states custom_logit_processor custom_params extra_key"
            ),
        ),
        # llama.cpp tools/server/README: sampling fields of `/completion` also work in chat; `grammar` is GBNF.
        "llamacpp": Capabilities(
            stop_sequences=ANY_NUMBER,
            images=True,
            reasoning_effort=True,
            constrain="gbnf",
            continuation=True,
            extra_parameters=_names(
                "top_k min_p typical_p top_n_sigma dynatemp_range dynatemp_exponent repeat_penalty repeat_last_n"
                " xtc_probability xtc_threshold dry_multiplier dry_base dry_allowed_length dry_penalty_last_n"
                " dry_sequence_breakers mirostat mirostat_tau mirostat_eta grammar json_schema samplers logit_bias"
                " logprobs top_logprobs n_probs min_keep ignore_eos cache_prompt id_slot n_keep chat_template_kwargs"
                " reasoning_format thinking_budget_tokens timings_per_token return_progress return_tokens"
                " post_sampling_probs lora"
            ),
        ),
        # Its OpenAI endpoint has no further sampling fields; a JSON Schema is sent as `response_format`.
        "ollama": Capabilities(
            reasoning_history="reasoning",
            stop_sequences=ANY_NUMBER,
            images=True,
            reasoning_effort=True,
            constrain="json_schema",
            extra_parameters=frozenset({"reasoning", "logprobs", "top_logprobs"}),
        ),
        "lmstudio": Capabilities(
            stop_sequences=ANY_NUMBER,
            images=True,
            constrain="json_schema",
            extra_parameters=frozenset({"top_k", "repeat_penalty", "min_p", "logit_bias", "ttl", "draft_model"}),
            choice_objects=False,
            response_format=frozenset({"json_schema"}),
        ),
        # `transformers serve` leaves a stop sequence in the text that it ended, so the gateway applies all of them.
        "transformers": Capabilities(
            stop_sequences=0,
            extra_parameters=frozenset({"logit_bias", "generation_config"}),
        ),
    }
)


def preset_of(config: BackendConfig, identity: Identity | None) -> str:
    """Returns the name of the preset to use: the configured one, else that of the engine that the server reports, else
    that of its host, else `generic`."""
    if config.preset != AUTO:
        return config.preset
    if identity is not None and identity.engine is not None and identity.engine in PRESETS:
        return identity.engine
    return HOSTS.get(urlsplit(config.url or "").hostname or "", GENERIC)


def capabilities(
    config: BackendConfig, identity: Identity | None = None, *, images: bool | None = None, effort: bool = False
) -> Capabilities:
    """Returns the capabilities of a backend: its preset, overridden by the keys that `config` sets.

    `identity` is what the server reports about itself; it is used where the configuration names no preset. `images` and
    `effort`: see `ServerSide.images` and `ServerSide.reasoning_effort`. Raises `ValueError` for an unknown preset or
    constraint.
    """
    preset = PRESETS.get(preset_of(config, identity))
    wrong = [] if preset is not None else [f"unknown preset {config.preset!r}: one of {', '.join((AUTO, *PRESETS))}"]
    if config.constrain is not None and config.constrain not in CONSTRAINTS:
        wrong.append(f"unknown constraint {config.constrain!r}: one of {', '.join(sorted(CONSTRAINTS))}")
    if preset is None or wrong:
        raise ValueError("; ".join(wrong))
    known = {f.name for f in fields(Capabilities)}
    own: dict[str, Any] = {
        f.name: value
        for f in fields(BackendConfig)
        if f.name in known and (value := getattr(config, f.name)) is not None
    }
    if config.images is None and config.preset == AUTO and identity is not None and identity.images is not None:
        own["images"] = identity.images
    elif config.images is None:
        own["images"] = preset.images or images is True
        own["images_unknown"] = not own["images"] and images is None
    else:
        own["images"] = config.images == "true"
        own["refuse_images"] = config.images == "error"
    if config.late_system is None and identity is not None and _REFUSES_SYSTEM.search(identity.template or ""):
        own["late_system"] = False
    own["own_tools"] = config.tool_types is None
    own |= {name: frozenset(own[name]) for name in ("extra_parameters", "response_format", "tool_types") if name in own}
    return replace(preset, **{"reasoning_effort": preset.reasoning_effort or effort, **own})
