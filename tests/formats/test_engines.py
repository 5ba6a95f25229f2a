"""Every parser that vLLM 0.33 and SGLang 0.5.23 list has a format here: the list in docs/reference/formats.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolwire.registry import registries

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"

VLLM = (
    "apertus beam cohere_command3 cohere_command4 deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 dots ernie45"
    " functiongemma gemma4 gigachat3 glm45 glm47 granite granite-20b-fc granite4 hermes hf hunyuan_a13b hy_v3 hy_v4 inkling"
    " internlm jamba k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3_json llama4_json llama4_pythonic longcat mimo minicpm5"
    " minimax_m2 minimax_m3 mistral muse muse_glimmer musespark1x olmo3 openai phi4_mini_json plamo3 poolside_v1 pythonic"
    " qwen3_coder qwen3_json qwen3_xml seed_oss step3 step3p5 step5 xlam"
)
SGLANG = (
    "apertus2509 beam cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots gemma4 gigachat3"
    " gigachat35 glm glm45 glm47 gpt-oss hermes hunyuan inkling interns1 iquest_q1 k2_horizon kimi_k2 kimi_k3 lfm2 ling3"
    " llama3 mimo minicpm5 minimax-m2 minimax-m3 mistral muse nanbeige poolside_v1 pythonic qwen qwen25 qwen3_coder"
    " response_template spark25 step3 step3p5 trinity"
)


def listed() -> Iterator[tuple[str, str]]:
    """A parser and its format, where their names differ."""
    for line in PAGE.read_text("utf-8").partition("## Parser names of engines")[2].splitlines():
        if line.startswith("- "):
            ours, *theirs = re.findall(r"`([^`]+)`", line)
            yield from ((name, ours) for name in theirs)


@pytest.mark.parametrize("names", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_every_parser_has_a_format(names: str) -> None:
    assert set(names.split()) <= {name for name, _ in listed()} | set(registries().formats.names())


def test_each_is_listed_once_and_its_format_exists() -> None:
    parsers = [name for name, _ in listed()]
    assert sorted(set(parsers)) == sorted(parsers)
    assert {ours for _, ours in listed()} <= set(registries().formats.names())
    assert ("hunyuan", "hunyuan3") in listed()  # SGLang's name for it, and ours for an earlier one


def test_every_format_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    built_in = {name for name in registries().formats.names() if registries().formats.get(name).name == name} - {"dots"}
    missing = {name for name in built_in if f"- `{name}` (" not in page}
    assert not missing, f"docs/reference/formats.md has no line for {sorted(missing)}"
