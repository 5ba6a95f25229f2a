"""What there is to know of each format beside its notation: where prose may stand, what ends what, what is data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
    the answer was cut off; or whole in the same case, since the closer is the token with which a model stops.
    `value_closer` ends an argument's value in tagged text. `wraps`: what may
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
    without_closer: Literal["repaired", "whole", "stopped"] = "repaired"
    value_closer: str = ""
    wraps: tuple[tuple[str, str], ...] = (("", ""),)
    ids: Literal["", "kimi", "mistral"] = ""
    mentions: tuple[str, ...] = field(default=())
    framed: bool = False

    @property
    def first(self) -> str:
        """What every single call begins with."""
        return self.starts or self.opener


def _format(title: str, opener: str = "", closer: str = "", also: tuple[str, ...] = (), **facts: Any) -> Format:
    """A format with arguments of its own. Unless something else is said, the function of its name writes it, and its
    markers are what opens and closes a call, and `also` others."""
    facts = {
        "name": title,
        "write": facts["write"] if "write" in facts else getattr(writers, title),
        "encoding": "own",
        "markers": (*filter(None, (opener, closer)), *also),
        **facts,
    }
    return Format(title=title, opener=opener, closer=closer, **facts)


def _json(title: str, opener: str = "", closer: str = "", **facts: Any) -> Format:
    """A format whose calls are objects with a name and arguments."""
    return _format(title, opener, closer, **{"encoding": "json", "named": True, "empty": ("{}", "absent"), **facts})


def _tagged(title: str, opener: str, closer: str, value_closer: str, **facts: Any) -> Format:
    return _format(title, opener, closer, encoding="tagged", value_closer=value_closer, **facts)


_DS = (
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁sep｜>",
    ),
)
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>")
_LIST = {"together": True}
_ALONE = {"prose": (), "together": True}

FORMATS: Sequence[Format] = (
    _json(
        "sentinel",
        "<tool_call>",
        "</tool_call>",
        variants=("", "lines", "object"),
        empty=("{}", "absent", '""', "null"),
    ),
    _json("hermes", "<tool_call>", "</tool_call>", variants=("", "tight", "fence", "wide")),
    _json(
        "fenced_json", "```json", "```", separators=("\n\n", "\n"), variants=("", "openai", "quoted", "lines"), **_LIST
    ),
    _json(
        "bare_json", variants=("", "one", "openai", "quoted", "lines"), markers=("{", "}"), mentions=("{",), **_ALONE
    ),
    _tagged(
        "qwen3_coder",
        "<tool_call>",
        "</tool_call>",
        "\n</parameter>\n",
        variants=("", "tight", "no_opener", "open_parameters"),
        also=("<function=f>", "</function", "see <parameter=k>"),
    ),
    _tagged(
        "glm45",
        "<tool_call>",
        "</tool_call>",
        "</arg_value>\n",
        also=("<arg_key>", "</arg_key>", "<arg_value>"),
    ),
    _tagged(
        "glm47",
        "<tool_call>",
        "</tool_call>",
        "</arg_value>",
        also=("<arg_key>", "</arg_key>", "<arg_value>"),
    ),
    _json(
        "llama3_json",
        variants=("", "tag", "arguments", "tight"),
        markers=("<|python_tag|>", "; "),
        mentions=("<|python_tag|>", "{"),
        **_ALONE,
    ),
    _format(
        "pythonic",
        variants=("", "double", "tags", "raw_quotes"),
        markers=("<|python_start|>", "<|python_end|>", "[", "f(a=1)"),
        mentions=("<|python_start|>", "["),
        prose=(),
        together=True,
    ),
    _format(
        "olmo3",
        "<function_calls>",
        "</function_calls>",
        variants=("", "json_words"),
        together=True,
    ),
    _json(
        "mistral before v11",
        "[TOOL_CALLS]",
        write=writers.mistral_array,
        name="mistral",
        variants=("", "tight"),
        together=True,
        reasoning=("[THINK]", "[/THINK]"),
    ),
    _format(
        "mistral",
        "[TOOL_CALLS]",
        encoding="json",
        variants=("", "space"),
        also=("[ARGS]", "[CALL_ID]"),
        reasoning=("[THINK]", "[/THINK]"),
        ids="mistral",
    ),
    _format(
        "deepseek_v3",
        _DS[0],
        _DS[2],
        encoding="json",
        starts=_DS[1],
        end=_DS[3],
        variants=("", "tight"),
        markers=(*_DS, "```"),
        prose=SECTION,
    ),
    _format(
        "deepseek_v31",
        _DS[0],
        _DS[2],
        encoding="json",
        starts=_DS[1],
        end=_DS[3],
        variants=("", "lines"),
        markers=_DS,
        prose=SECTION,
    ),
    *(
        _tagged(
            title,
            f"<{bar[:-1]}",
            f"</{bar}{space}invoke>",
            f"</{bar}{space}parameter>",
            write=writers.dsml(section, bar),
            starts=f"<{bar}{space}invoke",
            end=f"</{bar[:-1]}",
            variants=("", "tight", "self"),
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
    _format(
        "kimi_k2",
        _KIMI[0],
        _KIMI[2],
        encoding="json",
        starts=_KIMI[1],
        end=_KIMI[3],
        variants=("", "space", "singular", "lines"),
        markers=(*_KIMI, "<|tool_call_argument_begin|>"),
        prose=SECTION,
        ids="kimi",
    ),
    _tagged(
        "minimax_m2",
        "<minimax:tool_call>",
        "</invoke>",
        "</parameter>",
        starts="<invoke",
        end="</minimax:tool_call>",
        variants=("", "single", "bare", "tight"),
        markers=("<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=", "</invoke>"),
        prose=SECTION,
    ),
    _json(
        "granite",
        "<|tool_call|>",
        variants=("", "tag", "hermes", "function_call"),
        also=("<tool_call>", "<function_call>"),
        prose=("before",),
        together=True,
    ),
    _json("phi4_mini", "functools", separators=("\n\n", "\n"), markers=("functools[",), **_LIST),
    _json(
        "xlam",
        variants=("", "fence", "mistral", "tag"),
        markers=("```", "[TOOL_CALLS]", "<tool_call>"),
        mentions=("[", "[TOOL_CALLS]", "<tool_call>"),
        **_ALONE,
    ),
    _format(
        "lfm2",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        variants=("", "single", "json"),
        without_closer="whole",
        together=True,
    ),
    _format(
        "gemma4",
        "<|tool_call>",
        "<tool_call|>",
        without_closer="whole",
        also=("call:f{",),
        reasoning=("<|channel>thought\n", "<channel|>"),
    ),
    _format("functiongemma", "<start_function_call>", "<end_function_call>", without_closer="whole", reasoning=None),
    _json(
        "hunyuan",
        "<tool_calls>",
        "</tool_calls>",
        write=writers.tool_calls_array,
        variants=("", "tight"),
        together=True,
    ),
    _json(
        "ernie",
        "<tool_call>",
        "</tool_call>",
        wraps=(("", ""), ("<response>\n", "\n</response>")),
        separators=("\n\n", "\n"),
        also=("<response>",),
    ),
    _tagged(
        "seed_oss",
        "<seed:tool_call>",
        "</seed:tool_call>",
        "\n</parameter>\n",
        variants=("", "open_parameters"),
        also=("<function=f>", "see <parameter=k>"),
        reasoning=("<seed:think>", "</seed:think>"),
    ),
    _tagged(
        "step3",
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
        "<tool_calls>",
        "</tool_calls>",
        write=writers.tool_calls_array,
        variants=("", "tight"),
        reasoning=None,
        together=True,
    ),
    _format(
        "harmony",
        "<|channel|>",
        "<|call|>",
        encoding="json",
        without_closer="whole",
        variants=("", "json", "plain", "role", "analysis"),
        also=("<|end|>", "<|message|>", "<|start|>assistant"),
        reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
        wraps=(("<|channel|>final<|message|>", "<|end|>"), ("<|channel|>commentary<|message|>", "<|end|>")),
    ),
    _tagged(
        "mimo",
        "<tool_call>",
        "</tool_call>",
        "</parameter>\n",
        also=("<function=f>", "</function", "see <parameter=k>"),
    ),
    _tagged(
        "minicpm5",
        "<function name=",
        "</function>",
        "</param>",
        variants=("", "cdata"),
        also=("<param name=",),
    ),
    _tagged(
        "minimax_m3",
        "]<]minimax[>[<tool_call>",
        "]<]minimax[>[</invoke>",
        "]<]minimax[>[</",
        starts="]<]minimax[>[<invoke",
        end="]<]minimax[>[</tool_call>",
        variants=("", "\n"),
        markers=("<tool_call>", "</invoke>", "]<]minimax", "</item>"),
        reasoning=("<mm:think>", "</mm:think>"),
        prose=SECTION,
    ),
    _tagged(
        "dots_llm",
        "<dots_function_call>",
        "</invoke>",
        "</parameter>",
        write=writers.elements("dots_function_call"),
        starts="<invoke",
        end="</dots_function_call>",
        markers=("<dots_function_call>", "<invoke name=", "</invoke>"),
        prose=SECTION,
    ),
    _tagged(
        "muse",
        "<atem:function_calls>",
        "</atem:invoke>",
        "</atem:parameter>",
        write=writers.elements("atem:function_calls", "atem:"),
        starts="<atem:invoke",
        end="</atem:function_calls>",
        markers=("<atem:function_calls>", "<atem:invoke name=", "</atem:invoke>", "<|message|>"),
        reasoning=("<|start|>assistant to=self<|message|>", "<|eom|>"),
        wraps=(("", ""), ("<|start|>assistant to=user<|message|>", "<|eom|>")),
        prose=SECTION,
    ),
    _tagged(
        "beam",
        "<|start|>assistant",
        "<|call|>",
        "\n</rfl:parameter>",
        framed=True,
        without_closer="stopped",
        also=("<|channel|>",),
        reasoning=("<|channel|>analysis<|message|>", "<|end|>"),
        mentions=("<rfl:parameter",),
        separators=("",),
        prose=("before",),
    ),
    _tagged(
        "iquest",
        "<iquest_tool_call>",
        "</iquest_tool_call>",
        "</arg_value>",
        write=writers.keys_and_values("iquest_tool_call"),
        also=("<arg_key>",),
    ),
    _tagged(
        "hunyuan3",
        "<tool_calls>",
        "</tool_call>",
        "</arg_value>\n",
        write=writers.keys_and_values("tool_call", "tool_calls", behind_name="tool_sep", line="\n"),
        starts="<tool_call>",
        end="</tool_calls>",
        variants=("", ":opensource"),
        markers=("<tool_calls>", "<tool_call>", "</tool_call>", "<arg_key>", "<tool_sep>"),
        prose=SECTION,
    ),
    _tagged(
        "hunyuan4",
        "<tool_calls>",
        "</tool_call>",
        "</arg_value>",
        write=writers.keys_and_values("tool_call", "tool_calls"),
        starts="<tool_call>",
        end="</tool_calls>",
        variants=("", ":6124c78e"),
        markers=("<tool_calls>", "<tool_call>", "</tool_call>", "<arg_key>"),
        prose=SECTION,
    ),
    _tagged(
        "k2_horizon",
        "<ifm|tool_calls>",
        "</ifm|tool_call>",
        "</ifm|arg_value>\n",
        write=writers.keys_and_values("ifm|tool_call", "ifm|tool_calls", prefix="ifm|", line="\n"),
        starts="<ifm|tool_call>",
        end="</ifm|tool_calls>",
        variants=("", "typed"),
        markers=("<ifm|tool_calls>", "<ifm|tool_call>", "</ifm|tool_call>", "<ifm|arg_key>"),
        reasoning=("<ifm|think>", "</ifm|think>"),
        prose=SECTION,
    ),
    _tagged(
        "solar_open2",
        "<|tool_call:start|>",
        "<|tool_call:end|>",
        "<|tool_arg:end|>\n",
        also=("<|tool_arg:start|>", "<|tool_arg:value|>"),
    ),
    _tagged(
        "kimi_k3",
        "<|open|>tools<|sep|>",
        "<|close|>call<|sep|>",
        "<|close|>argument<|sep|>",
        starts="<|open|>call",
        end="<|close|>tools<|sep|>",
        also=("<|open|>argument key=",),
        reasoning=("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        wraps=(("", ""), ("<|open|>response<|sep|>", "<|close|>response<|sep|>")),
        prose=SECTION,
    ),
    _json(
        "inkling",
        "<|message_model|>",
        "<|end_message|>",
        variants=("", "bare"),
        without_closer="whole",
        also=("<|content_text|>",),
        reasoning=("<|content_thinking|>", "<|end_message|>"),
        wraps=(("<|message_model|><|content_text|>", "<|end_message|>"),),
        separators=("",),
        mentions=("<|content_invoke",),
    ),
    _format(
        "plamo3",
        "<|plamo:begin_tool_requests:plamo|>",
        "<|plamo:end_tool_request:plamo|>",
        encoding="json",
        starts="<|plamo:begin_tool_request:plamo|>",
        end="<|plamo:end_tool_requests:plamo|>",
        variants=("", "plain"),
        also=("<|plamo:msg|>",),
        reasoning=("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
        prose=SECTION,
    ),
    _format(
        "functionary",
        ">>>",
        encoding="json",
        variants=("", "first"),
        also=(">>>all",),
        separators=("\n",),
        reasoning=None,
        without_closer="whole",
        prose=("before", "after"),
        mentions=(">>>",),
    ),
    _format("functionary_v31", "<function=", "</function>", encoding="json", markers=("<function=f>",), reasoning=None),
    _json(
        "openpangu",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        write=writers.tagged_array("<|tool_call_start|>", "<|tool_call_end|>"),
        variants=("", "\n"),
        without_closer="whole",
        **_LIST,
    ),
    _json(
        "apriel",
        "<tool_calls>",
        "</tool_calls>",
        write=writers.tagged_array("<tool_calls>", "</tool_calls>"),
        variants=("", "\n"),
        wraps=(("", ""), ("[BEGIN FINAL RESPONSE]\n", "\n[END FINAL RESPONSE]")),
        separators=("\n\n", "\n"),
        reasoning=("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
        **_LIST,
    ),
    _json(
        "hyperclovax",
        "-> tool/function_call",
        "<|im_end|>",
        write=writers.tagged_array("<|im_start|>assistant -> tool/function_call\n", "<|im_end|>"),
        markers=("-> tool/function_call", "<|im_end|>"),
        without_closer="whole",
        reasoning=("/think\n", "<|im_end|>"),
        **_LIST,
    ),
    _json(
        "cohere",
        "<|START_ACTION|>",
        "<|END_ACTION|>",
        write=writers.tagged_array("<|START_ACTION|>", "<|END_ACTION|>", "parameters", "tool_name"),
        variants=("", "\n"),
        without_closer="whole",
        wraps=(("<|START_RESPONSE|>", "<|END_RESPONSE|>"), ("<|START_TEXT|>", "<|END_TEXT|>")),
        reasoning=("<|START_THINKING|>", "<|END_THINKING|>"),
        **_LIST,
    ),
    _tagged(
        "iquest_coder",
        "<iquestcoder_tool_call>",
        "</iquestcoder_tool_call>",
        "</arg_value>\n",
        write=writers.keys_and_values("iquestcoder_tool_call", line="\n"),
        also=("<arg_key>",),
    ),
    _tagged(
        "telechat4",
        "<tool_call>",
        "</tool_call>",
        "</param_value>",
        write=writers.keys_and_values("tool_call", words="param"),
        also=("<param_key>",),
    ),
    _format(
        "llm_jp",
        "<|channel|>",
        "<|call|>",
        encoding="json",
        without_closer="whole",
        also=("<|end|>", "<|message|>", "<|start|> assistant"),
        reasoning=("<|channel|> analysis<|message|>", "<|end|>"),
        wraps=(("<|channel|> final<|message|>", "<|end|>"), ("<|channel|> commentary<|message|>", "<|end|>")),
        separators=("",),
        prose=SECTION,
    ),
    _json("minimax_m1", "<tool_calls>", "</tool_calls>", together=True),
    _json("step_audio2", "<tool_call>", "</tool_call>", named=False, empty=("{}",)),
    _format("sarashina", "<|tool_calls|>", variants=("", "double"), also=("[{'name': 'f'}]",), together=True),
    _format("ui_tars", "Action:", also=("f(a=1)",), separators=("\n\n", "\n"), reasoning=None),
    _json(
        "gigachat",
        "function call<|role_sep|>",
        variants=("", "token"),
        also=("<|function_call|>",),
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
