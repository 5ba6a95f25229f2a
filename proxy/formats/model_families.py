"""The format that a family of models was trained on, found by the model's name or by its chat template."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_ROWS: Final[tuple[tuple[str, str | None], ...]] = (
    # Derived models, before the families they are named after.
    (r"(deep)?hermes", "hermes"),
    (r"xlam", "xlam"),
    (r"deepseek[-_.]?r1[-_]0528", "deepseek_v3"),
    (
        r"(deepseek[-_.]?)?r1[-_]?distill|deepseek[-_]?r1:(1\.5|7|8|14|32|70)b",
        None,
    ),  # distilled models were not trained to call tools
    (r"llama[-_]?3[._]1[-_]nemotron[-_](51|70)b", "llama3_json"),
    (r"nemotron[-_](orchestrator|terminal|cascade[-_](8|14)b)", "hermes"),  # made of Qwen3
    (r"nemotron[-_]?cascade|nemotron[-_](nano|super|ultra)[-_]?v?3(?![0-9_])", "qwen3_coder"),
    (r"nemotron[-_]?[3-9]([._p-][0-9])?(?![0-9._b-]*b|[0-9])", "qwen3_coder"),
    (r"nemotron", "nemotron"),
    (r"functiongemma", "functiongemma"),
    (r"functionary.*v3[._]1", "functionary_v31"),
    (r"functionary", "functionary"),
    (r"firefunction", "phi4_mini"),
    (r"llama[-_]?3[-_]groq|k2[-_](think(?!ing)|v2)", "hermes"),
    (r"cogito[-_.:]?(v?2[._p-]1|.*(671b|deepseek))", "deepseek_v3"),
    (r"cogito", "hermes"),
    (r"holo[-_]?[3-9]|ornith|tmax|qwopus", "qwen3_coder"),
    (r"holo[-_]?[12]", "hermes"),
    (r"step[-_]?3[-_]vl[-_]10b", "hermes"),
    # Families.
    (r"gpt[-_]?oss", "harmony"),
    (r"llm[-_]?jp[-_]?[4-9]", "llm_jp"),
    (
        r"qwen[-_]?3[-_]?coder|qwen[-_]?3([._p][5-9](?![0-9]*b)|[5-9](?![0-9b])|-[5-9]-[0-9]+b)|qwen[-_]?[4-9](?![0-9]*b)",
        "qwen3_coder",
    ),
    (r"step[-_]?audio", "step_audio2"),
    (r"step[-_]?(3[._p-][5-9]|[5-9])(?![0-9])|nanbeige", "qwen3_coder"),
    (r"mimo[-_]?v[2-9]", "mimo"),
    (r"mimo|exaone[-_]?4|k[-_]exaone|reka[-_]?edge|smollm[-_]?3", "hermes"),
    (r"trinity", "trinity"),
    (r"qwen|qwq", "hermes"),
    (r"glm[-_]?4[._p-][56](?![0-9]*b)", "glm45"),
    (r"glm[-_]?(4[._p-]7|[5-9])(?![0-9]*b|[0-9])", "glm47"),
    (r"(ling|ring)[-_]?([a-z0-9]+[-_])?v?(2[._p-][6-9]|[3-9])(?![0-9]*b|[0-9])", "glm45"),
    (r"(ling|ring)[-_]?([12]|(mini|flash|lite|plus|max)[-_])", "hermes"),
    (r"muse[-_]?(spark|glimmer)", "muse"),
    (r"laguna|spark[-_]?(2[._p]5|3)(?![0-9])", "glm45"),
    (r"hyperclovax[-_]seed[-_]think[-_]14b", "hyperclovax"),
    (r"hyperclovax[-_]seed[-_]think", "glm45"),
    (r"iquest[-_](.*[-_])?q1(?![0-9])", "iquest"),
    (r"iquest[-_]?coder[-_]?v[2-9]", "iquest_coder"),
    (r"tele[-_]?chat[-_]?[4-9]|xing[-_]?[4-9]", "telechat4"),
    (r"solar[-_]?open[-_]?2", "solar_open2"),
    (r"k2[-_]?(horizon|v3)", "k2_horizon"),
    (r"minimax[-_]?(m1|text|vl)", "minimax_m1"),
    (r"minimax[-_]?m2", "minimax_m2"),
    (r"minimax[-_]?m[3-9]", "minimax_m3"),
    (r"deepseek[-_.]?v4[._p-][1-9](?![0-9])", "deepseek_v41"),
    (r"deepseek[-_.]?(v4(?![0-9])|chat(?!-)|reasoner)", "deepseek_v4"),
    (r"deepseek[-_.]?v3[._p-](1|2[-_]?exp)(?![0-9])", "deepseek_v31"),
    (r"deepseek[-_.]?v3[._p-]2(?![0-9])", "deepseek_v32"),
    (r"deepseek[-_.]?(v3|r1)(?![0-9])", "deepseek_v3"),
    (r"kimi[-_]?k[3-9]", "kimi_k3"),
    (r"kimi[-_]?(k2|linear)", "kimi_k2"),
    (r"mistral[-_]?(7b|nemo|small[-_:]?(24b|22b|24(?![0-9])|240|25(01|03)|3[._p-]1)|large[-_]?24)", "mistral_v3"),
    (
        r"mistral[:-]instruct|mistral(:v?0|:7b|:latest|$)|mixtral|pixtral|ministral[-_][38]b[-_](instruct[-_])?24",
        "mistral_v3",
    ),
    (r"mistral|ministral|magistral|devstral|leanstral|voxtral|codestral[-_](25|26|latest)", "mistral"),
    (r"llama[-_]?4", "pythonic"),
    (r"llama[-_]?3[._p-][1-3](?![0-9])", "llama3_json"),
    (r"granite[-_]?(4[._p-][2-9]|[5-9])(?![0-9]*b)", "qwen3_coder"),
    (r"granite[-_]?4", "hermes"),
    (r"granite[-_]?3|granite[-_]20b[-_]functioncalling", "granite"),
    (r"phi[-_]?4[-_](mini|multimodal)", "phi4_mini"),
    (r"lfm[-_]?[2-9]", "lfm2"),
    (r"(diffusion[-_]?)?gemma[-_]?4|diffusion[-_]?gemma", "gemma4"),
    (r"(hunyuan|hy)[-_]?4(?![0-9b])", "hunyuan4"),
    (r"(hunyuan|hy)[-_]?3(?![0-9b])", "hunyuan3"),
    (r"hunyuan", "hunyuan"),
    (r"ernie[-_]?4[._p]5", "ernie"),
    (r"seed[-_]?oss", "seed_oss"),
    (r"step[-_]?3", "step3"),
    (r"intern(lm|[-_]?s1)", "internlm"),
    (r"jamba", "jamba"),
    (r"olmo[-_]?3", "olmo3"),
    (r"longcat", "longcat"),
    (r"apertus", "apertus"),
    (r"command[-_]?(r7b|a|[4-9])(?![a-z0-9])|north[-_](mini|small|medium|large|code|[0-9])", "cohere"),
    (r"minicpm[-_]?[5-9]", "minicpm5"),
    (r"minicpm[-_]?[vo][-_]?[5-9]", "qwen3_coder"),
    (r"minicpm[-_]?[vo]", "hermes"),
    (r"gigachat[-_]?3[._p]5", "gigachat35"),
    (r"gigachat[-_]?3", "gigachat"),
    (r"dots[._-]?(llm|vlm|[1-9])", "dots_llm"),
    (r"inkling", "inkling"),
    (r"plamo[-_]?3", "plamo3"),
    (r"openpangu[-_]?v?2", "openpangu"),
    (r"apriel", "apriel"),
    (r"beam(?![a-z])", "beam"),
    (r"sarashina", "sarashina"),
    (r"cwm(?![a-z])", "cwm"),
    (r"ui[-_]?tars", "ui_tars"),
)
"""Patterns, tried in this order, with their formats; None: the model has no known format."""

# A family's name begins a word; Ollama and Bedrock write the version directly after it.
_PATTERNS: Final = tuple((re.compile(rf"(?<![a-z])(?:{pattern})"), name) for pattern, name in _ROWS)

_DISTILLED: Final = re.compile(r"(?<!r1[-_])distill(?:ed|ation)?(?:[-_](?:in)?to)?[-_]")
"""The word between a teacher's name and the model's own, or after both."""
_PATH: Final = re.compile(r"[/\\]|--")
_UNNAMED: Final = re.compile(r"(?:[0-9a-f]{12,64}|(?:ggml-)?model[^/]*|main|snapshots|gguf|mlx)(?:\.gguf)?")
"""Components of paths that do not name a model: hashes of revisions, and `model.gguf`."""


def format_for(model: str) -> str | None:
    """Returns the name of the format that this model was trained on, or None if its name does not tell.

    Vendors before a slash, tags after a colon, suffixes of GGUF files and of quantisation are ignored. In a path the
    last component that can name a model counts: `models--org--name/snapshots/HASH`, `name/model.gguf`.
    """
    return _format_for(model[:256])


@lru_cache(maxsize=1024)  # a pure function, asked for every request; clients choose the names
def _format_for(model: str) -> str | None:
    name = model.lower().replace(" ", "-").rstrip("/")
    components = [part for part in _PATH.split(name) if part]
    # The last component names the model; those before it, such as `meta-llama/`, are names of vendors and folders.
    name = next((part for part in reversed(components) if not _UNNAMED.fullmatch(part)), "")
    if found := _DISTILLED.search(name):  # `deepseek-v3.1-distill-qwen3-4b` is a Qwen3; `qwen3-4b-kimi-k2-distill` too
        return _family(name[found.end() :]) or _first(name)
    return _first(name) if "distill" in name else _family(name)


def _family(name: str) -> str | None:
    return next((found for pattern, found in _PATTERNS if pattern.search(name)), None)


def _first(name: str) -> str | None:
    """Returns the family whose name comes first: the model's own, if its teachers are named after it."""
    places = [(found.start(), row) for row, (pattern, _) in enumerate(_PATTERNS) if (found := pattern.search(name))]
    return _PATTERNS[min(places)[1]][1] if places else None


_WRITTEN: Final[tuple[tuple[tuple[str, ...], str | None], ...]] = (
    (("<ifm|tool_call>",), "k2_horizon"),
    (("<|tool_call:start|>",), "solar_open2"),
    (("<|tool_calls|>", "<|tool_call:begin|>"), None),  # Solar Open, whose form is not known here
    (("<|tool_calls|>",), "sarashina"),
    (("<iquestcoder_tool_call>",), "iquest_coder"),
    (("<iquest_tool_call>",), "iquest"),
    (("<param_key>", "<param_value>"), "telechat4"),
    (("<tool_sep>", "<arg_key>"), "hunyuan3"),
    (("<tool_calls>", "<arg_key>"), "hunyuan4"),
    (("<seed:tool_call>",), "seed_oss"),
    (("<|tool_call>call:",), "gemma4"),
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<tool_call>", "<arg_key>"), "glm45"),
    (("<tool_call>function",), "step_audio2"),
    (("<tool_call>", "<response>"), "ernie"),
    (("<tool_call>", '"arguments"'), "hermes"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral"),
    (("[TOOL_CALLS]",), "mistral_v3"),
    (("<|channel|>", "<|start|> assistant"), "llm_jp"),
    (("<|channel|>", "<|start|>assistant"), "harmony"),
    (("<atem:invoke",), "muse"),
    (("<|content_invoke_tool_json|>",), "inkling"),
    (("<minimax:tool_call>",), "minimax_m2"),
    (("]<]minimax[>[",), "minimax_m3"),
    (("｜DSML｜ ",), "deepseek_v41"),
    (("｜DSML｜", "tool_calls"), "deepseek_v4"),
    (("｜DSML｜",), "deepseek_v32"),
    (("｜GCML｜",), "gigachat35"),
    (("<｜tool▁calls▁begin｜>", "```json"), "deepseek_v3"),
    (("<｜tool▁calls▁begin｜>",), "deepseek_v31"),
    (("<steptml:",), "step3"),
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (("<|open|>", "<|sep|>"), "kimi_k3"),
    (("<|START_ACTION|>",), "cohere"),
    (("<|tools_prefix|>",), "apertus"),
    (("<|plugin|>",), "internlm"),
    (("<longcat_tool_call>",), "longcat"),
    (("<dots_function_call>",), "dots_llm"),
    (("<TOOLCALL>",), "nemotron"),
    (("<|tool_call_start|>",), "lfm2"),
    (("<start_function_call>",), "functiongemma"),
    (("<|python_tag|>", '"parameters"'), "llama3_json"),
)
"""Marks that occur together in a template, and the format; the first match wins. Each row occurs in templates of its
family only."""


def format_of_template(template: str) -> str | None:
    """Returns the name of the format in which a chat template writes calls, or None if it is unknown."""
    # Templates come from servers: a cache must not keep large ones.
    return _format_of_template(template) if len(template) <= 64 * 1024 else _format_of_template.__wrapped__(template)


@lru_cache(maxsize=64)
def _format_of_template(template: str) -> str | None:
    # Quotes inside a template's strings may be escaped.
    plain = template.replace('\\"', '"')
    return next((found for marks, found in _WRITTEN if all(mark in plain for mark in marks)), None)
