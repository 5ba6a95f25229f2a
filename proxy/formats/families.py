"""Which format the models of a family were trained on, by the model's name, or by what its chat template writes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_ROWS: Final[tuple[tuple[str, str | None], ...]] = (
    # Derived models, before those whose name they bear.
    (r"hermes", "hermes"),
    (r"xlam", "xlam"),
    (r"deepseek[-_]?r1[-_]0528", "deepseek_v3"),
    (r"r1[-_]?distill|deepseek[-_]?r1:(1\.5|7|8|14|32|70)b", None),  # the distilled ones never learned to call
    (r"nemotron[-_]?3(?![0-9._])", "qwen3_coder"),
    (r"nemotron", "nemotron"),
    (r"functiongemma", "functiongemma"),
    (r"functionary.*v3[._]1", "functionary_v31"),
    (r"functionary", "functionary"),
    (r"firefunction", "phi4_mini"),
    # Families.
    (r"gpt[-_]?oss", "harmony"),
    (r"qwen3[-_]?coder|qwen3[._p][5-9]|step[-_]?(3[._p][5-9]|5)|nanbeige", "qwen3_coder"),
    (r"mimo[-_]?v[2-9]", "mimo"),
    (r"mimo|exaone[-_]?4|k[-_]exaone|reka[-_]?edge", "hermes"),
    (r"trinity", "trinity"),
    (r"qwen|qwq", "hermes"),
    (r"glm[-_]?4[._p][56]", "glm45"),
    (r"glm[-_]?(4[._p]7|5)(?![0-9])", "glm47"),
    (r"ling[-_]?3(?![0-9])", "glm47"),
    (r"muse[-_]?(spark|glimmer)", "muse"),
    (r"laguna|spark[-_]?(2[._p]5|3)(?![0-9])", "glm45"),
    (r"hyperclovax[-_]seed[-_]think[-_]14b", "hyperclovax"),
    (r"hyperclovax[-_]seed[-_]think", "glm45"),
    (r"iquest[-_](.*[-_])?q1(?![0-9])", "iquest"),
    (r"solar[-_]?open[-_]?2", "solar_open2"),
    (r"k2[-_]?(horizon|v3)", "k2_horizon"),
    (r"minimax[-_]?m2", "minimax_m2"),
    (r"minimax[-_]?m3", "minimax_m3"),
    (r"deepseek[-_]?v4[._p-]1(?![0-9])", "deepseek_v41"),
    (r"deepseek[-_]?v4(?![0-9])", "deepseek_v4"),
    (r"deepseek[-_]?v3[._p-](1|2[-_]?exp)(?![0-9])", "deepseek_v31"),
    (r"deepseek[-_]?v3[._p-]2(?![0-9])", "deepseek_v32"),
    (r"deepseek[-_]?(v3|r1)(?![0-9])", "deepseek_v3"),
    (r"kimi[-_]?k3", "kimi_k3"),
    (r"kimi[-_]?(k2|linear)", "kimi_k2"),
    (r"mistral[-_]?(7b|nemo|small[-_:]?(24b|22b|24(?![0-9])|240|25(01|03)|3[._p-]1)|large[-_]?24)", "mistral_v3"),
    (
        r"mistral[:-]instruct|mistral(:v?0|:7b|:latest|$)|mixtral|pixtral|ministral[-_]8b[-_]instruct[-_]24",
        "mistral_v3",
    ),
    (r"mistral|ministral|magistral|devstral", "mistral"),
    (r"llama[-_]?4", "pythonic"),
    (r"llama[-_]?3[._p-][1-3](?![0-9])", "llama3_json"),
    (r"granite[-_]?4", "hermes"),
    (r"granite[-_]?3|granite[-_]20b[-_]functioncalling", "granite"),
    (r"phi[-_]?4", "phi4_mini"),
    (r"lfm[-_]?2", "lfm2"),
    (r"gemma[-_]?4", "gemma4"),
    (r"(hunyuan|hy)[-_]?4(?![0-9])", "hunyuan4"),
    (r"(hunyuan|hy)[-_]?3(?![0-9])", "hunyuan3"),
    (r"hunyuan", "hunyuan"),
    (r"ernie[-_]?4[._p]5", "ernie"),
    (r"seed[-_]?oss", "seed_oss"),
    (r"step[-_]?3", "step3"),
    (r"intern(lm|[-_]?s1)", "internlm"),
    (r"jamba", "jamba"),
    (r"olmo[-_]?3", "olmo3"),
    (r"longcat", "longcat"),
    (r"apertus", "apertus"),
    (r"command[-_]?(r7b|a|4)(?![a-z0-9])", "cohere"),
    (r"minicpm[-_]?5", "minicpm5"),
    (r"gigachat[-_]?3[._p]5", "gigachat35"),
    (r"gigachat[-_]?3", "gigachat"),
    (r"dots[._-]?(llm|vlm|1)", "dots_llm"),
    (r"inkling", "inkling"),
    (r"plamo[-_]?3", "plamo3"),
    (r"openpangu[-_]?v?2", "openpangu"),
    (r"apriel", "apriel"),
    (r"beam(?![a-z])", "beam"),
)
"""Patterns, tried in this order, and formats; None: no format of its own is known."""

# A family's name begins a word; Ollama and Bedrock write the version right behind it.
_PATTERNS: Final = tuple((re.compile(rf"(?<![a-z])(?:{pattern})"), name) for pattern, name in _ROWS)


def format_for(model: str) -> str | None:
    """The name of the format that this model was trained on; None if its name says nothing.

    Vendors before a slash, tags behind a colon, suffixes of GGUF files and of quantisation do not matter.
    """
    return _format_for(model[:256])


@lru_cache(maxsize=1024)  # a pure function, asked for every request; clients choose the names
def _format_for(model: str) -> str | None:
    name = model.lower().replace(" ", "-")
    # The last component names the model; those before it, such as `meta-llama/`, whoever put it there.
    name = name.rstrip("/").rpartition("/")[2]
    return next((found for pattern, found in _PATTERNS if pattern.search(name)), None)


_WRITTEN: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<tool_call>", "<arg_key>"), "glm45"),
    (("<tool_call>", '"arguments"'), "hermes"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral"),
    (("[TOOL_CALLS]",), "mistral_v3"),
    (("<|channel|>", "<|start|>assistant"), "harmony"),
    (("<minimax:tool_call>",), "minimax_m2"),
    (("<｜DSML｜",), "deepseek_v32"),
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (("<|tool_call_start|>",), "lfm2"),
    (("<start_function_call>",), "functiongemma"),
    (("<|python_tag|>", '"parameters"'), "llama3_json"),
)
"""What a template writes around calls, all of it, and the format; the first row that fits. Only what is in no other
family's template."""


def format_of_template(template: str) -> str | None:
    """The name of the format in which a chat template writes calls; None if it writes none that is known."""
    # Templates come from servers: a cache must not keep large ones.
    return _format_of_template(template) if len(template) <= 64 * 1024 else _format_of_template.__wrapped__(template)


@lru_cache(maxsize=64)
def _format_of_template(template: str) -> str | None:
    # In a template quotes inside of strings may be escaped.
    plain = template.replace('\\"', '"')
    return next((found for marks, found in _WRITTEN if all(mark in plain for mark in marks)), None)
