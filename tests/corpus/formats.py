"""What there is to know of each format beside its notation: where prose may stand, what ends what, what is data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.corpus import writers
from tests.corpus.writers import Write

THINK = ("<think>", "</think>")
ANYWHERE = ("before", "between", "after")
SECTION = ("before", "after")


@dataclass(frozen=True, kw_only=True)
class Format:
    """A format, or a version of one. `name` is the product's name for it, `title` tells versions apart.

    `write` writes calls, in one of `variants`. `encoding` is that of arguments. `opener` begins a call (or a section of
    them) and `starts` each single one; `closer` is the last literal of a single one, `end` that of the section.
    `together`: several calls are one block, so that all of them are cut off where one is. `prose`: where text may
    stand. `markers` are data inside string values. `empty`: ways to write no arguments.
    `without_closer`: what a call is with nothing but its closer missing: whole, since brackets end it; repaired, unless
    the answer was cut off; whole in the same case, since the closer is the token with which a model stops; or text,
    since an argument more might have come. `value_closer` ends an argument's value in tagged text. `wraps`: what may
    stand around prose. `mentions`: what a text may speak of without a call; none: the opener. `framed`: the opener is
    framing if no call follows.
    """

    title: str
    name: str
    write: Write
    encoding: Literal["json", "tagged", "own"]
    opener: str = ""
    starts: str = ""
    closer: str = ""
    end: str = ""
    together: bool = False
    parallel: bool = True
    prose: tuple[str, ...] = ANYWHERE
    separators: tuple[str, ...] = ("\n\n", "\n", " ", "")
    variants: tuple[str, ...] = ("",)
    reasoning: tuple[str, str] | None = THINK
    markers: tuple[str, ...] = ()
    empty: tuple[str, ...] = ("{}",)
    named: bool = False
    without_closer: Literal["repaired", "whole", "stopped", "text"] = "repaired"
    value_closer: str = ""
    wraps: tuple[tuple[str, str], ...] = (("", ""),)
    ids: Literal["", "kimi", "mistral"] = ""
    mentions: tuple[str, ...] = field(default=())
    framed: bool = False

    @property
    def first(self) -> str:
        """What every single call begins with."""
        return self.starts or self.opener


def _json(title: str, write: Write, opener: str = "", closer: str = "", **facts: object) -> Format:
    """A format whose calls are objects with a name and arguments."""
    facts = {
        "name": title,
        "named": True,
        "empty": ("{}", "absent"),
        "markers": tuple(filter(None, (opener, closer))),
        **facts,
    }
    return Format(title=title, write=write, encoding="json", opener=opener, closer=closer, **facts)  # type: ignore[arg-type]


def _tagged(title: str, write: Write, opener: str, closer: str, value_closer: str, **facts: object) -> Format:
    facts = {"name": title, "markers": (opener, closer), **facts}
    return Format(  # type: ignore[arg-type]
        title=title,
        write=write,
        encoding="tagged",
        opener=opener,
        closer=closer,
        value_closer=value_closer,
        **facts,
    )


_DS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁sep｜>",
)
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>")
_SECTION = {"prose": SECTION}
_LIST = {"together": True}
_ALONE = {"prose": (), "together": True}

FORMATS: Sequence[Format] = (
    _json(
        "sentinel",
        writers.sentinel,
        "<tool_call>",
        "</tool_call>",
        variants=("", "lines", "object"),
        empty=("{}", "absent", '""', "null"),
    ),
    _json("hermes", writers.hermes, "<tool_call>", "</tool_call>", variants=("", "tight", "fence", "wide")),
    _json(
        "fenced_json",
        writers.fenced_json,
        "```json",
        "```",
        separators=("\n\n", "\n"),
        variants=("", "openai", "quoted", "lines"),
        **_LIST,
    ),
    _json(
        "bare_json",
        writers.bare_json,
        variants=("", "one", "openai", "quoted", "lines"),
        markers=("{", "}"),
        mentions=("{",),
        **_ALONE,
    ),
    _tagged(
        "qwen3_coder",
        writers.qwen3_coder,
        "<tool_call>",
        "</tool_call>",
        "\n</parameter>\n",
        variants=("", "tight", "no_opener", "open_parameters"),
        markers=("<tool_call>", "</tool_call>", "<function=f>", "</function", "see <parameter=k>"),
    ),
    _tagged(
        "glm45",
        writers.glm45,
        "<tool_call>",
        "</tool_call>",
        "</arg_value>\n",
        without_closer="text",
        markers=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>"),
    ),
    _tagged(
        "glm47",
        writers.glm47,
        "<tool_call>",
        "</tool_call>",
        "</arg_value>",
        without_closer="text",
        markers=("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>"),
    ),
    _json(
        "llama3_json",
        writers.llama3_json,
        variants=("", "tag", "arguments", "tight"),
        markers=("<|python_tag|>", "; "),
        mentions=("<|python_tag|>", "{"),
        **_ALONE,
    ),
    Format(
        title="pythonic",
        name="pythonic",
        write=writers.pythonic,
        encoding="own",
        variants=("", "double", "tags", "raw_quotes"),
        markers=("<|python_start|>", "<|python_end|>", "[", "f(a=1)"),
        mentions=("<|python_start|>", "["),
        prose=(),
        together=True,
    ),
    Format(
        title="olmo3",
        name="olmo3",
        write=writers.olmo3,
        encoding="own",
        opener="<function_calls>",
        closer="</function_calls>",
        variants=("", "json_words"),
        markers=("<function_calls>", "</function_calls>"),
        together=True,
        without_closer="text",
    ),
    _json(
        "mistral before v11",
        writers.mistral_array,
        "[TOOL_CALLS]",
        name="mistral",
        variants=("", "tight"),
        together=True,
        reasoning=("[THINK]", "[/THINK]"),
    ),
    Format(
        title="mistral",
        name="mistral",
        write=writers.mistral,
        encoding="json",
        opener="[TOOL_CALLS]",
        variants=("", "space"),
        markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
        reasoning=("[THINK]", "[/THINK]"),
        ids="mistral",
    ),
    Format(
        title="deepseek_v3",
        name="deepseek_v3",
        write=writers.deepseek_v3,
        encoding="json",
        opener=_DS[0],
        starts=_DS[1],
        closer=_DS[2],
        end=_DS[3],
        variants=("", "tight"),
        markers=(*_DS, "```"),
        prose=SECTION,
    ),
    Format(
        title="deepseek_v31",
        name="deepseek_v31",
        write=writers.deepseek_v31,
        encoding="json",
        opener=_DS[0],
        starts=_DS[1],
        closer=_DS[2],
        end=_DS[3],
        variants=("", "lines"),
        markers=_DS,
        prose=SECTION,
    ),
    *(
        _tagged(
            title,
            writers.dsml(section, bar),
            f"<{bar[:-1]}",
            f"</{bar}{space}invoke>",
            f"</{bar}{space}parameter>",
            starts=f"<{bar}{space}invoke",
            end=f"</{bar[:-1]}",
            variants=("", "tight", "self"),
            without_closer="text",
            markers=(
                f"<{bar}{section}>",
                f"</{bar}{section}>",
                f"<{bar}{space}invoke name=",
                f"</{bar}{space}invoke>",
                bar,
            ),
            prose=SECTION,
        )
        for title, section, bar, space in (
            ("deepseek_v32", "function_calls", "｜DSML｜", ""),
            ("deepseek_v4", "tool_calls", "｜DSML｜", ""),
            ("deepseek_v41", " calls", "｜DSML｜", " "),
            ("gigachat35", "tool_calls", "｜GCML｜", ""),
        )
    ),
    Format(
        title="kimi_k2",
        name="kimi_k2",
        write=writers.kimi_k2,
        encoding="json",
        opener=_KIMI[0],
        starts=_KIMI[1],
        closer=_KIMI[2],
        end=_KIMI[3],
        variants=("", "space", "singular", "lines"),
        markers=(*_KIMI, "<|tool_call_argument_begin|>"),
        prose=SECTION,
        ids="kimi",
    ),
    _tagged(
        "minimax_m2",
        writers.minimax_m2,
        "<minimax:tool_call>",
        "</invoke>",
        "</parameter>",
        starts="<invoke",
        end="</minimax:tool_call>",
        variants=("", "single", "bare", "tight"),
        without_closer="text",
        markers=("<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=", "</invoke>"),
        prose=SECTION,
    ),
    _json(
        "granite",
        writers.granite,
        "<|tool_call|>",
        variants=("", "tag", "hermes", "function_call"),
        markers=("<|tool_call|>", "<tool_call>", "<function_call>"),
        prose=("before",),
        together=True,
    ),
    _json("phi4_mini", writers.phi4_mini, "functools", separators=("\n\n", "\n"), markers=("functools[",), **_LIST),
    _json(
        "xlam",
        writers.xlam,
        variants=("", "fence", "mistral", "tag"),
        markers=("```", "[TOOL_CALLS]", "<tool_call>"),
        mentions=("[", "[TOOL_CALLS]", "<tool_call>"),
        **_ALONE,
    ),
    Format(
        title="lfm2",
        name="lfm2",
        write=writers.lfm2,
        encoding="own",
        opener="<|tool_call_start|>",
        closer="<|tool_call_end|>",
        variants=("", "single", "json"),
        without_closer="whole",
        markers=("<|tool_call_start|>", "<|tool_call_end|>"),
        together=True,
    ),
    Format(
        title="gemma4",
        name="gemma4",
        write=writers.gemma4,
        encoding="own",
        opener="<|tool_call>",
        closer="<tool_call|>",
        without_closer="whole",
        markers=("<|tool_call>", "<tool_call|>", "call:f{"),
        reasoning=("<|channel>thought\n", "<channel|>"),
    ),
    Format(
        title="functiongemma",
        name="functiongemma",
        write=writers.functiongemma,
        encoding="own",
        opener="<start_function_call>",
        closer="<end_function_call>",
        without_closer="whole",
        markers=("<start_function_call>", "<end_function_call>"),
        reasoning=None,
    ),
    _json("hunyuan", writers.tool_calls_array, "<tool_calls>", "</tool_calls>", variants=("", "tight"), together=True),
    _json(
        "ernie",
        writers.ernie,
        "<tool_call>",
        "</tool_call>",
        wraps=(("", ""), ("<response>\n", "\n</response>")),
        separators=("\n\n", "\n"),
        markers=("<tool_call>", "</tool_call>", "<response>"),
    ),
    _tagged(
        "seed_oss",
        writers.seed_oss,
        "<seed:tool_call>",
        "</seed:tool_call>",
        "\n</parameter>\n",
        variants=("", "open_parameters"),
        markers=("<seed:tool_call>", "</seed:tool_call>", "<function=f>", "see <parameter=k>"),
        reasoning=("<seed:think>", "</seed:think>"),
    ),
    _tagged(
        "step3",
        writers.step3,
        "<｜tool_calls_begin｜>",
        "<｜tool_call_end｜>",
        "</steptml:parameter>",
        starts="<｜tool_call_begin｜>",
        end="<｜tool_calls_end｜>",
        variants=("", "tight"),
        markers=("<｜tool_calls_begin｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>", "<steptml:invoke"),
        prose=SECTION,
    ),
    _json(
        "internlm",
        writers.internlm,
        "<|action_start|><|plugin|>",
        "<|action_end|>",
        variants=("", "arguments", "tight"),
        without_closer="whole",
        parallel=False,
        prose=SECTION,
        markers=("<|action_start|>", "<|plugin|>", "<|action_end|>"),
    ),
    _json(
        "jamba",
        writers.tool_calls_array,
        "<tool_calls>",
        "</tool_calls>",
        variants=("", "tight"),
        reasoning=None,
        together=True,
    ),
    Format(
        title="harmony",
        name="harmony",
        write=writers.harmony,
        encoding="json",
        opener="<|channel|>",
        closer="<|call|>",
        without_closer="whole",
        variants=("", "json", "plain", "role", "analysis"),
        markers=("<|channel|>", "<|call|>", "<|end|>", "<|message|>", "<|start|>assistant"),
        reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
        wraps=(("<|channel|>final<|message|>", "<|end|>"), ("<|channel|>commentary<|message|>", "<|end|>")),
    ),
    # The formats of 2026, and earlier ones that were not here.
    _tagged(
        "mimo",
        writers.mimo,
        "<tool_call>",
        "</tool_call>",
        "</parameter>\n",
        markers=("<tool_call>", "</tool_call>", "<function=f>", "</function", "see <parameter=k>"),
    ),
    _tagged(
        "minicpm5",
        writers.minicpm5,
        "<function name=",
        "</function>",
        "</param>",
        variants=("", "cdata"),
        without_closer="text",
        markers=("<function name=", "</function>", "<param name="),
    ),
    _tagged(
        "minimax_m3",
        writers.minimax_m3,
        "]<]minimax[>[<tool_call>",
        "]<]minimax[>[</invoke>",
        "]<]minimax[>[</",
        starts="]<]minimax[>[<invoke",
        end="]<]minimax[>[</tool_call>",
        variants=("", "\n"),
        without_closer="text",
        markers=("<tool_call>", "</invoke>", "]<]minimax", "</item>"),
        reasoning=("<mm:think>", "</mm:think>"),
        prose=SECTION,
    ),
    _tagged(
        "dots_llm",
        writers.elements("dots_function_call"),
        "<dots_function_call>",
        "</invoke>",
        "</parameter>",
        starts="<invoke",
        end="</dots_function_call>",
        without_closer="text",
        markers=("<dots_function_call>", "<invoke name=", "</invoke>"),
        prose=SECTION,
    ),
    _tagged(
        "muse",
        writers.elements("atem:function_calls", "atem:"),
        "<atem:function_calls>",
        "</atem:invoke>",
        "</atem:parameter>",
        starts="<atem:invoke",
        end="</atem:function_calls>",
        without_closer="text",
        markers=("<atem:function_calls>", "<atem:invoke name=", "</atem:invoke>", "<|message|>"),
        reasoning=("<|start|>assistant to=self<|message|>", "<|eom|>"),
        wraps=(("", ""), ("<|start|>assistant to=user<|message|>", "<|eom|>")),
        prose=SECTION,
    ),
    _tagged(
        "beam",
        writers.beam,
        "<|start|>assistant",
        "<|call|>",
        "\n</rfl:parameter>",
        framed=True,
        without_closer="stopped",
        markers=("<|start|>assistant", "<|call|>", "<|channel|>"),
        reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
        mentions=("<rfl:parameter",),
        separators=("",),
        prose=("before",),
    ),
    _tagged(
        "iquest",
        writers.keys_and_values("iquest_tool_call"),
        "<iquest_tool_call>",
        "</iquest_tool_call>",
        "</arg_value>",
        without_closer="text",
        markers=("<iquest_tool_call>", "</iquest_tool_call>", "<arg_key>"),
    ),
    _tagged(
        "hunyuan3",
        writers.keys_and_values("tool_call", "tool_calls", behind_name="tool_sep", line="\n"),
        "<tool_calls>",
        "</tool_call>",
        "</arg_value>\n",
        starts="<tool_call>",
        end="</tool_calls>",
        variants=("", ":opensource"),
        without_closer="text",
        markers=("<tool_calls>", "<tool_call>", "</tool_call>", "<arg_key>", "<tool_sep>"),
        prose=SECTION,
    ),
    _tagged(
        "hunyuan4",
        writers.keys_and_values("tool_call", "tool_calls"),
        "<tool_calls>",
        "</tool_call>",
        "</arg_value>",
        starts="<tool_call>",
        end="</tool_calls>",
        variants=("", ":6124c78e"),
        without_closer="text",
        markers=("<tool_calls>", "<tool_call>", "</tool_call>", "<arg_key>"),
        prose=SECTION,
    ),
    _tagged(
        "k2_horizon",
        writers.keys_and_values("ifm|tool_call", "ifm|tool_calls", prefix="ifm|", line="\n"),
        "<ifm|tool_calls>",
        "</ifm|tool_call>",
        "</ifm|arg_value>\n",
        starts="<ifm|tool_call>",
        end="</ifm|tool_calls>",
        variants=("", "typed"),
        without_closer="text",
        markers=("<ifm|tool_calls>", "<ifm|tool_call>", "</ifm|tool_call>", "<ifm|arg_key>"),
        reasoning=("<ifm|think>", "</ifm|think>"),
        prose=SECTION,
    ),
    _tagged(
        "solar_open2",
        writers.solar_open2,
        "<|tool_call:start|>",
        "<|tool_call:end|>",
        "<|tool_arg:end|>\n",
        without_closer="text",
        markers=("<|tool_call:start|>", "<|tool_call:end|>", "<|tool_arg:start|>", "<|tool_arg:value|>"),
    ),
    _tagged(
        "kimi_k3",
        writers.kimi_k3,
        "<|open|>tools<|sep|>",
        "<|close|>call<|sep|>",
        "<|close|>argument<|sep|>",
        starts="<|open|>call",
        end="<|close|>tools<|sep|>",
        without_closer="text",
        markers=("<|open|>tools<|sep|>", "<|close|>call<|sep|>", "<|open|>argument key="),
        reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        wraps=(("", ""), ("<|open|>response<|sep|>", "<|close|>response<|sep|>")),
        prose=SECTION,
    ),
    _json(
        "inkling",
        writers.inkling,
        "<|message_model|>",
        "<|end_message|>",
        variants=("", "bare"),
        without_closer="whole",
        markers=("<|message_model|>", "<|end_message|>", "<|content_text|>"),
        reasoning=("<|content_thinking|>", "<|end_message|>"),
        wraps=(("<|message_model|><|content_text|>", "<|end_message|>"),),
        separators=("",),
        mentions=("<|content_invoke",),
    ),
    Format(
        title="plamo3",
        name="plamo3",
        write=writers.plamo3,
        encoding="json",
        opener="<|plamo:begin_tool_requests:plamo|>",
        starts="<|plamo:begin_tool_request:plamo|>",
        closer="<|plamo:end_tool_request:plamo|>",
        end="<|plamo:end_tool_requests:plamo|>",
        variants=("", "plain"),
        markers=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:end_tool_request:plamo|>", "<|plamo:msg|>"),
        reasoning=("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
        prose=SECTION,
    ),
    Format(
        title="functionary",
        name="functionary",
        write=writers.functionary,
        encoding="json",
        opener=">>>",
        variants=("", "first"),
        markers=(">>>", ">>>all"),
        separators=("\n",),
        reasoning=None,
        without_closer="whole",
        prose=("before", "after"),
        mentions=(">>>",),
    ),
    Format(
        title="functionary_v31",
        name="functionary_v31",
        write=writers.functionary_v31,
        encoding="json",
        opener="<function=",
        closer="</function>",
        markers=("<function=f>",),
        reasoning=None,
    ),
    _json(
        "openpangu",
        writers.tagged_array("<|tool_call_start|>", "<|tool_call_end|>"),
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        variants=("", "\n"),
        without_closer="whole",
        **_LIST,
    ),
    _json(
        "apriel",
        writers.tagged_array("<tool_calls>", "</tool_calls>"),
        "<tool_calls>",
        "</tool_calls>",
        variants=("", "\n"),
        wraps=(("", ""), ("[BEGIN FINAL RESPONSE]\n", "\n[END FINAL RESPONSE]")),
        separators=("\n\n", "\n"),
        reasoning=("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
        **_LIST,
    ),
    _json(
        "hyperclovax",
        writers.tagged_array("<|im_start|>assistant -> tool/function_call\n", "<|im_end|>"),
        "-> tool/function_call",
        "<|im_end|>",
        markers=("-> tool/function_call", "<|im_end|>"),
        without_closer="whole",
        reasoning=("/think\n", "<|im_end|>"),
        **_LIST,
    ),
    _json(
        "cohere",
        writers.tagged_array("<|START_ACTION|>", "<|END_ACTION|>", "parameters", "tool_name"),
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        variants=("", "\n"),
        without_closer="whole",
        wraps=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        **_LIST,
    ),
    _tagged(
        "iquest_coder",
        writers.keys_and_values("iquestcoder_tool_call", line="\n"),
        "<iquestcoder_tool_call>",
        "</iquestcoder_tool_call>",
        "</arg_value>\n",
        without_closer="text",
        markers=("<iquestcoder_tool_call>", "</iquestcoder_tool_call>", "<arg_key>"),
    ),
    _tagged(
        "telechat4",
        writers.keys_and_values("tool_call", words="param"),
        "<tool_call>",
        "</tool_call>",
        "</param_value>",
        without_closer="text",
        markers=("<tool_call>", "</tool_call>", "<param_key>"),
    ),
    Format(
        title="llm_jp",
        name="llm_jp",
        write=writers.llm_jp,
        encoding="json",
        opener="<|channel|>",
        closer="<|call|>",
        without_closer="whole",
        markers=("<|channel|>", "<|call|>", "<|end|>", "<|message|>", "<|start|> assistant"),
        reasoning=("<|channel|> analysis<|message|>", "<|end|>"),
        wraps=(("<|channel|> final<|message|>", "<|end|>"), ("<|channel|> commentary<|message|>", "<|end|>")),
        separators=("",),
        prose=SECTION,
    ),
    _json("minimax_m1", writers.minimax_m1, "<tool_calls>", "</tool_calls>", together=True),
    _json("step_audio2", writers.step_audio2, "<tool_call>", "</tool_call>", named=False, empty=("{}",)),
    Format(
        title="sarashina",
        name="sarashina",
        write=writers.sarashina,
        encoding="own",
        opener="<|tool_calls|>",
        variants=("", "double"),
        markers=("<|tool_calls|>", "[{'name': 'f'}]"),
        together=True,
    ),
    Format(
        title="ui_tars",
        name="ui_tars",
        write=writers.ui_tars,
        encoding="own",
        opener="Action:",
        markers=("Action:", "f(a=1)"),
        separators=("\n\n", "\n"),
        reasoning=None,
    ),
    _json(
        "gigachat",
        writers.gigachat,
        "function call<|role_sep|>",
        variants=("", "token"),
        markers=("function call<|role_sep|>", "<|function_call|>"),
        without_closer="whole",
        parallel=False,
        reasoning=None,
        prose=("before",),
    ),
)

ALIKE = frozenset(
    (
        *("deepseek_v41", "gigachat35", "iquest", "hunyuan4", "k2_horizon", "minicpm5", "dots_llm", "muse", "mimo"),
        *("trinity", "jamba", "hunyuan", "apriel", "openpangu", "hyperclovax", "cohere", "gigachat", "functionary_v31"),
        *("iquest_coder", "telechat4", "minimax_m1", "sarashina", "ui_tars"),
    )
)
"""Formats that are read with the places of another one that is here: a part of the cases will do."""

_WHOLE = "the whole answer is calls"
_NO_NAME = "the name is not a key that could come second"
_ONE_WAY = "it is written in one way only"
CANNOT: dict[str, dict[str, str]] = {
    "before": dict.fromkeys(("bare_json", "llama3_json", "pythonic", "xlam"), _WHOLE),
    "between": {
        **dict.fromkeys(("bare_json", "llama3_json", "pythonic", "xlam"), _WHOLE),
        **dict.fromkeys(
            (
                *("deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "gigachat35"),
                *("kimi_k2", "kimi_k3", "minimax_m2", "minimax_m3", "step3", "dots_llm", "muse", "plamo3"),
                *("hunyuan3", "hunyuan4", "k2_horizon"),
            ),
            "all calls stand in one section",
        ),
        "llm_jp": "only the last call ends with what ends calls",
        "granite": "its array runs to the end of the answer",
        **dict.fromkeys(("internlm", "gigachat"), "one call an answer"),
        **dict.fromkeys(("beam", "functionary"), "what is said stands first"),
    },
    "after": {
        **dict.fromkeys(("bare_json", "llama3_json", "pythonic", "xlam"), _WHOLE),
        "granite": "its array runs to the end of the answer",
        "gigachat": "the call ends the turn",
        "beam": "the call ends the turn",
    },
    "parallel": dict.fromkeys(("internlm", "gigachat"), "one call an answer"),
    "reversed": {format.title: _NO_NAME for format in FORMATS if not format.named},
    "whitespace": {format.title: _ONE_WAY for format in FORMATS if len(format.variants) == 1},
    "reasoning": {format.title: "its models do not think" for format in FORMATS if format.reasoning is None},
}
"""What a format cannot express, by case class, and why: every other pair of class and format must have cases."""
