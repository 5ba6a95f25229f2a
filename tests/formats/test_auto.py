"""`format: auto`: whatever a model was trained on is read, and the model's name says what to teach (R6.12)."""

from __future__ import annotations

import pytest

from tests.cases import every
from tests.formats.cases import FORMATS, NAMES, SEARCH, bare, every_format, scan
from toolwire.app import create_app
from toolwire.formats.base import ToolFormat, builtin_formats
from toolwire.formats.model_families import format_for, format_of_template
from toolwire.formats.recognised import auto
from toolwire.model import Text
from toolwire.pipeline.exchange.routing import ROUTER
from toolwire.registry import registries
from toolwire.scan._plan import plan
from toolwire.upstream.servers.identity import Identity, ServedModel

UNION = auto.FORMAT


@every_format
@every("scan_calls", [False, True])
def test_every_grammar_can_be_read(tool_format: ToolFormat, scan_calls: bool) -> None:
    grammar = tool_format.grammar
    for tags in ((), grammar.reasoning, tuple(dict.fromkeys([*grammar.reasoning, ("<think>", "</think>")]))):
        read = plan(grammar, tags, scan_calls).nodes.keys()
        taught = {syntax for syntax in grammar.syntaxes if not syntax.untaught}
        assert taught <= read
        # Of two untaught syntaxes that cannot be told from each other the first one is read.
        assert {(syntax.opener, syntax.anchor) for syntax in read} == {(s.opener, s.anchor) for s in grammar.syntaxes}


@every(
    ("written", "arguments"),
    [
        ('<tool_call>{"name":"search","arguments":{"q":"x"}}</tool_call>', '{"q":"x"}'),
        ('<tool_call>[{"name":"search","arguments":{"q":"x"}}]', '{"q":"x"}'),
        ("<tool_call><function=search><parameter=q>x</parameter></function></tool_call>", '{"q":"x"}'),
        ("<tool_call>search<arg_key>q</arg_key><arg_value>x</arg_value></tool_call>", '{"q":"x"}'),
        ('[TOOL_CALLS] [{"name":"search","arguments":{"q":"x"}}]', '{"q":"x"}'),
        ('[TOOL_CALLS]search[CALL_ID]abc123def[ARGS]{"q":"x"}', '{"q":"x"}'),
        ('[TOOL_CALLS]search{"q":"x"}', '{"q":"x"}'),
        ('{"name":"search","parameters":{"q":"x"}}', '{"q":"x"}'),
        ('{"tool_calls":[{"name":"search","arguments":{"q":"x"}}]}', '{"q":"x"}'),
        ('[search(q="x")]', '{"q":"x"}'),
        ('[{"name":"search","arguments":{"q":"x"}}]', '{"q":"x"}'),
        ('```json\n[{"name":"search","arguments":{"q":"x"}}]\n```', '{"q":"x"}'),
        ('```json\n{"tool_calls":[{"name":"search","arguments":{"q":"x"}}]}\n```', '{"q":"x"}'),
        ("<｜DSML｜ calls><｜DSML｜invoke name=\"search\"></｜DSML｜invoke></｜DSML｜ calls>", "{}"),
    ],
)  # fmt: skip
def test_what_follows_an_opener_tells_formats_apart(written: str, arguments: str) -> None:
    for answer in ([written], list(written)):
        assert bare(scan(UNION, (SEARCH,), answer)) == [("search", arguments)]


@pytest.mark.parametrize(
    "text",
    [
        "functools.partial(f) and functools[0] and function call",
        '{"city": "Oslo"}',
        "[1, 2, 3]",
        "[link](https://example.com/?a=[b])",
        "```json\n{\"a\": 1}\n```",
        "<response>ok</response> <|end|>",
        "The <tool_call> tag, the [TOOL_CALLS] token and <function=f> are markers.",
    ],
)  # fmt: skip
def test_other_text_comes_back(text: str) -> None:
    for answer in ([text], list(text)):
        assert scan(UNION, (SEARCH,), answer) == (Text(text),)


MODELS = {
    "hermes": "Qwen/Qwen2.5-7B-Instruct qwen3:8b NousResearch/Hermes-3-Llama-3.1-8B ibm-granite/granite-4.0-h-small granite4:micro XiaomiMiMo/MiMo-7B-RL RekaAI/reka-edge-2603",
    "qwen3_coder": "unsloth/Qwen3-Coder-30B-A3B-Instruct-GGUF:Q4_K_M qwen3-coder:30b qwen3.5:9b stepfun-ai/Step-3.5-Flash Step-5",
    "glm45": "zai-org/GLM-4.5-Air glm-4.6 inclusionAI/Ling-3.0 Ling-2.6-flash Ring-2.6-1T accounts/fireworks/models/glm-4p5 poolside/Laguna-XS.2 Spark-2.5 HyperCLOVAX-SEED-Think-32B",
    "glm47": "glm-4.7-flash GLM-5 GLM-5.3-Flash glm-6",
    "llama3_json": "meta-llama/Llama-3.1-8B-Instruct llama3.2:3b us.meta.llama3-1-70b-instruct-v1:0 Llama-3.3-70B-Instruct.Q4_K_M.gguf",
    "pythonic": "meta-llama/Llama-4-Scout-17B-16E llama4:scout",
    "mistral": "mistralai/Mistral-Small-3.2-24B-Instruct-2506 mistral-small3.2 devstral:24b Magistral-Small-2509 ministral-3",
    "mistral_v3": "mistral:7b mistral mistralai/Mistral-7B-Instruct-v0.3 mistral-nemo mixtral:8x7b mistral-small:24b",
    "deepseek_v3": "deepseek-ai/DeepSeek-V3 DeepSeek-V3-0324 deepseek-r1 deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "deepseek_v31": "deepseek-v3.1-terminus accounts/fireworks/models/deepseek-v3p1 deepseek-ai/DeepSeek-V3.2-Exp",
    "deepseek_v32": "deepseek-ai/DeepSeek-V3.2 deepseek-v3.2-speciale",
    "deepseek_v4": "deepseek-ai/DeepSeek-V4-Pro deepseek-v4",
    "deepseek_v41": "deepseek-ai/DeepSeek-V4.1 deepseek-v4p1",
    "kimi_k2": "moonshotai/Kimi-K2-Instruct kimi-k2.5",
    "kimi_k3": "kimi-k3",
    "minimax_m2": "MiniMaxAI/MiniMax-M2 minimax-m2:cloud",
    "granite": "ibm-granite/granite-3.3-8b-instruct granite3.3:8b",
    "phi4_mini": "microsoft/Phi-4-mini-instruct phi4-mini fireworks-ai/llama-3-firefunction-v2",
    "xlam": "Salesforce/Llama-xLAM-2-8b-fc-r",
    "lfm2": "LiquidAI/LFM2-1.2B-GGUF lfm2.5",
    "gemma4": "google/gemma-4-27b-it",
    "functiongemma": "google/functiongemma-270m-it",
    "hunyuan": "tencent/Hunyuan-A13B-Instruct",
    "ernie": "baidu/ERNIE-4.5-21B-A3B-PT",
    "seed_oss": "ByteDance-Seed/Seed-OSS-36B-Instruct",
    "step3": "stepfun-ai/step3",
    "internlm": "internlm/internlm2_5-7b-chat internlm/Intern-S1",
    "jamba": "ai21labs/AI21-Jamba-1.5-Mini",
    "harmony": "openai/gpt-oss-20b gpt-oss:120b",
    "olmo3": "allenai/Olmo-3-7B-Think",
    "nemotron": "nvidia/Llama-3.1-Nemotron-Nano-8B-v1",
    "cohere": "CohereLabs/c4ai-command-r7b-12-2024 command-a-03-2025 CohereLabs/command-4",
    "longcat": "meituan-longcat/LongCat-Flash-Chat",
    "apertus": "swiss-ai/Apertus-8B-Instruct-2509",
    "minicpm5": "openbmb/MiniCPM5-8B",
    "gigachat": "ai-sage/GigaChat3-10B-A1.8B ai-sage/GigaChat3.1-10B",
    "gigachat35": "ai-sage/GigaChat3.5-432B-A28B",
    "hunyuan3": "tencent/Hy3-preview tencent/Hunyuan-3",
    "hunyuan4": "tencent/Hunyuan-4 hy4",
    "minimax_m3": "MiniMaxAI/MiniMax-M3",
    "muse": "muse-spark-1.5 Muse-Glimmer-30B",
    "iquest": "IQuestLab/IQuest-Q1",
    "solar_open2": "upstage/Solar-Open-2-100B",
    "k2_horizon": "LLM360/K2-Horizon k2-v3-instruct",
    "dots_llm": "rednote-hilab/dots.llm1.inst",
    "inkling": "thinkingmachines/Inkling-Small",
    "plamo3": "pfnet/plamo-3-nict-31b",
    "openpangu": "openpangu-2.0-flash",
    "hyperclovax": "naver-hyperclovax/HyperCLOVAX-SEED-Think-14B",
    "apriel": "ServiceNow-AI/Apriel-1.6-15b-Thinker",
    "trinity": "arcee-ai/Trinity-Mini",
    "mimo": "XiaomiMiMo/MiMo-V2-Flash mimo-v2.5-pro",
    "functionary": "meetkai/functionary-medium-v3.2",
    "functionary_v31": "meetkai/functionary-small-v3.1",
    "beam": "beam-1",
}


@every("name", MODELS)
def test_names_of_models_say_their_format(name: str) -> None:
    assert {model: format_for(model) for model in MODELS[name].split()} == dict.fromkeys(MODELS[name].split(), name)


@pytest.mark.parametrize(
    "model",
    ["", "gpt-4o", "claude-3", "smollm2", "gemma3:4b", "deepseek-r1:8b", "DeepSeek-R1-Distill-Qwen-7B", "x" * 10**6],
)
def test_other_names_say_nothing(model: str) -> None:
    assert format_for(model) is None


def test_every_family_is_a_format_and_every_format_a_name() -> None:
    assert MODELS.keys() <= builtin_formats().keys()
    assert len({f.name for f in FORMATS}) == len(FORMATS)
    assert [registries().formats.get(name).name for name in NAMES] == list(NAMES)


@pytest.mark.parametrize(
    ("alias", "name"),
    [("qwen_xml", "qwen3_coder"), ("llama3", "llama3_json"), ("dsml", "deepseek_v32"), ("gemma", "gemma4")],
)
def test_aliases(alias: str, name: str) -> None:
    assert registries().formats.get(alias) is registries().formats.get(name)


def test_a_route_with_auto_asks_the_name() -> None:
    backends = {"mock": {"kind": "mock"}}
    routes = [
        {"model": "alias", "upstream_model": "org/Qwen3-Coder-30B"},
        {"model": "glm-4.6", "upstream_model": "served"},
        {"model": "set", "upstream_model": "qwen3", "options": {"format": "mistral"}},
        {"model": "*"},
    ]
    routes = [{**route, "backend": "mock"} for route in routes]
    router = create_app({"backends": backends, "routes": routes, "defaults": {"format": "auto"}})[ROUTER]
    for model, name in {
        "alias": "qwen3_coder",
        "glm-4.6": "glm45",
        "set": "mistral",
        "kimi-k2": "kimi_k2",
        "x": "auto",
    }.items():
        assert router.find(model).format_for(model).name == name


def test_a_server_that_was_replaced_is_asked_anew() -> None:
    """The format cached for a name is valid only for the identity of the server that it was found with."""
    route = create_app({"backends": {"mock": {"kind": "mock"}}, "defaults": {"format": "auto"}})[ROUTER].find("x")
    for served, name in (("org/Qwen3-Coder-30B", "qwen3_coder"), ("glm-4.6", "glm45")):
        route.pool.members[0].endpoint.identity = Identity(models=(ServedModel(served),))
        assert [route.format_for("x").name for _ in range(2)] == [name] * 2


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("""{{- '<tool_call>\\n{\\"name\\": \\"' + call.name + '\\", \\"arguments\\": ' }}""", "hermes"),
        ("""{{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}""", "qwen3_coder"),
        ("""{{ '<tool_call>' + name }}<arg_key>{{ k }}</arg_key>""", "glm45"),
        ("""{{- "[TOOL_CALLS]" + name + "[ARGS]" + arguments }}""", "mistral"),
        ("""{{- "[TOOL_CALLS] [" }}""", "mistral_v3"),
        ("""{{- "<|python_tag|>" + name }}{{- '"parameters": ' }}""", "llama3_json"),
        ("{% for message in messages %}{{ message['content'] }}{% endfor %}", None),
        ("", None),
    ],
)
def test_a_template_says_in_which_form_calls_are_written(template: str, name: str | None) -> None:
    assert format_of_template(template) == name


def test_every_family_says_what_the_tables_need() -> None:
    """The page of formats, `toolwire formats` and `format: auto` take it from the declaration."""
    for made in FORMATS:
        assert made.models.text, f"{made.name}: `models` of its declaration has no `text`"
        assert made.models.call, f"{made.name}: `models` of its declaration has no `call`"
    assert [made.name for made in FORMATS if not (made.models.names or made.models.derived)] == [
        "auto",
        "bare_json",
        "fenced_json",
        "sentinel",
    ]


def test_of_two_families_in_a_name_the_longest_match_counts() -> None:
    assert format_for("glm-4.6-mimo-v2") == "glm45", "neither is derived from the other"
    assert format_for("mistral.mistral-7b-instruct-v0:2") == "mistral_v3", "a vendor's name matches less"
    assert format_for("Llama-3.1-Nemotron-Nano-8B-v1") == "nemotron", "derived from Llama"
