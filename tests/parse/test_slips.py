"""Mistakes of known model families beside their form (R30.6), and text behind a call (R30.3)."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any, Literal

from tests.cases import every
from tests.options import route_options
from tests.parse.reading import Calls, blocks, calls_and_text, in_pieces, scanned
from toolwire.config import CallsConfig, RouteOptions
from toolwire.events import Delta
from toolwire.formats.model_families import format_for
from toolwire.scanner import open_scanner

TOOLS = [
    {"name": name, "parameters": {"type": "object", "properties": properties, "required": list(properties)[:1]}}
    for name, properties in {
        "look_up": {"place": {"type": "string"}, "days": {"type": "integer"}},
        "run": {"command": {"type": "string"}},
        "now": {},
    }.items()
]
BERGEN = ("look_up", {"place": "Bergen"})
NOW = ("now", {})
LS = ("run", {"command": "ls -l"})


def dsml(bar: str, word: str = "tool_calls", r: str = "") -> str:
    """A section with one call, in this spelling of the bars."""
    tag, end = f"<{bar}DSML{bar}{r}", f"</{bar}DSML{bar}"
    value = f'{tag}parameter name="place" string="true">Bergen{end}parameter>'
    return f'{tag}{word}>\n{tag}invoke name="look_up">\n{value}\n{end}invoke>\n{end}{word}>'


INVOKE = '<invoke name="run">\n<parameter name="command">ls -l</parameter>\n</invoke>'
HERMES = '<tool_call>\n{"name":"look_up","arguments":{"place":"Bergen"}}\n</tool_call>'
QUOTE = '<|"|>'
DAYS = ("look_up", {"days": 2})
TWO_DAYS = ("look_up", {"place": "Bergen", "days": 2})
K2 = 'functions.run:0<|tool_call_argument_begin|>{"command":"ls -l"}<|tool_call_end|>'
QWEN2 = '✿FUNCTION✿: run\n✿ARGS✿: {"command":"ls -l"}\n'
SOLAR = '<|tool_call:begin|>abc<|tool_call:name|>run<|tool_call:args|>{"command":"ls -l"}<|tool_call:end|>'
RUN = '{"name": "run", "arguments": {"command": "ls -l"}}'
MESSAGE = f'{{"role": "assistant", "content": null, "tool_calls": [{RUN}]}}'

QWEN_LS = "<tool_call>\n<function=run>\n<parameter=command>\nls\n</parameter>\n</function>\n</tool_call>"
GLM_LS = "<tool_call>run<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>"

READ: list[tuple[str, str, list[tuple[str, dict[str, Any]]], str]] = [
    *(
        (model, text.replace("ls", document), [("run", {"command": document})], "")
        for model, text in (("glm-5", GLM_LS), ("qwen3-coder", QWEN_LS), ("my-model", QWEN_LS), ("my-model", INVOKE.replace("ls -l", "ls")))
        for document in (f"a\n{QWEN_LS}\nb", f"a\n{GLM_LS}\nb", f"a\n{HERMES}\nb", f"a\n{INVOKE}\nb")
    ),
    *(
        ("deepseek-v4", f"So.\n\n{dsml(bar, word, r)}", [BERGEN], "So.")
        for bar in ("｜", "｜｜", "|", "||", "‖", " | ", " ｜ ")
        for word, r in (("tool_calls", ""), ("function_calls", ""), ("tool_use", ""), ("tool_calls", "r:"))
    ),
    ("deepseek-v4", '<｜DSML｜invoke name="now"></｜DSML｜invoke>', [NOW], ""),
    ("my-model", dsml("||"), [BERGEN], ""),
    ("glm-5.3-flash", '<tool_call>look_up\n{"place":"Bergen"}</tool_call>', [BERGEN], ""),
    ("glm-5.3-flash", '<tool_call>look_up>{"place":"Bergen"}</tool_call>', [BERGEN], ""),
    ("glm-5.3-flash", "<tool_call>now</arg_value>", [NOW], ""),
    ("glm-5.3-flash", "<tool_call>now</arg_value></tool_call>", [NOW], ""),
    ("mimo-v2.6", "So. <tool_call><function=run>ls -l\n</parameter></function></tool_call>", [LS], "So."),
    ("glm-5", "<tool_call>run<arg_key><arg_key>command</arg_key><arg_value>ls -l</arg_value></tool_call>", [LS], ""),
    ("glm-4.6", f"{HERMES}</tool_call></tool_call>", [BERGEN], ""),
    ("laguna-xs", '<tool_call>run\n{"command":"ls -l"}\n<tool_call>now</tool_call>', [LS, NOW], ""),
    ("gemma4:12b", f"<|tool_call>call:tools:v1:look_up{{place:{QUOTE}Bergen{QUOTE}}}<tool_call|>", [BERGEN], ""),
    ("gemma4:12b", "<|tool_call>call:look_up{place:'Bergen', days: 2}<tool_call|>", [("look_up", {"place": "Bergen", "days": 2})], ""),
    ("gemma4:12b", '<|tool_call>call:run{"command":\'ls -l\'}<tool_call|>', [LS], ""),
    ("gemma4:12b", "<|tool_call>call:run{command:ls -l}<tool_call|>", [LS], ""),
    ("gemma4:12b", f"<|tool_call>:call:run{{command:{QUOTE}ls -l{QUOTE}}}<tool_call|>", [LS], ""),
    ("gemma4:12b", f"call:run{{command:{QUOTE}ls -l{QUOTE}}}<tool_call|>", [LS], ""),
    ("gemma4:12b", f"<|channel>thought\nWell.\n<channel|>call:run{{command:{QUOTE}ls -l{QUOTE}}}", [LS], ""),
    ("gemma4:12b", f"<call>run{{command:{QUOTE}ls -l{QUOTE}}}</call>", [LS], ""),
    ("gemma4:12b", "<|tool_call>call:now{}<tool_call|><tool_call|><turn|>", [NOW], ""),
    ("kimi-k2.6", 'functions.run:0<|tool_call_argument_begin|>{"command":"ls -l"}<|tool_call_end|><|tool_calls_section_end|>', [LS], ""),
    ("kimi-k2.6", f"So.<|tool_calls_section_begin|>{K2}<|tool_calls_section_end|>", [LS], "So."),
    ("my-model", f"<|tool_calls_section_begin|>{K2}<|tool_calls_section_end|>", [LS], ""),
    ("kimi-k2.6", f"So.<|tool_call_begin|>{K2}", [LS], "So."),
    ("kimi-k2.6", f"<|tool_calls_section_begin|>{K2}<|tool_call_begin|>{K2}<|tool_calls_section_end|>", [LS, LS], ""),
    ("kimi-k2.6", f"{K2}{K2}", [LS, LS], ""),
    ("qwen2-7b", QWEN2, [LS], ""),
    ("my-model", f"So.\n{QWEN2}✿RESULT✿", [LS], "So."),
    ("my-model", f"{QWEN2}{QWEN2}✿RESULT✿: More.", [LS, LS], "More."),
    ("mistral:7b", '[TOOL_CALLS][{"name":"now","arguments":{}}][/TOOL_CALLS]', [NOW], ""),
    ("qwen3.6", f"{HERMES}<|im_end|>", [BERGEN], ""),
    ("qwen3.6", f"{HERMES}\n<|im_end|>\n<|endoftext|>", [BERGEN], ""),
    ("qwen3.6", '<function=run>\n<parameter name="command">ls -l</parameter>\n</function>', [LS], ""),
    ("qwen3.6", '<function=run>\n<parameter name="command" value="ls -l"/>\n</function>', [LS], ""),
    ("qwen3.6", "<function=look_up><parameter name=place value='Bergen' /><parameter name=days value='2'/></function>", [TWO_DAYS], ""),
    ("qwen3.6", "So.\n<function=now/>", [NOW], "So."),
    ("qwen3.6", "<tool_call>\n<function=now />\n</tool_call>", [NOW], ""),
    ("my-model", '<invoke name="run"><parameter name="command" value="ls -l"></parameter></invoke>', [LS], ""),
    *(
        (model, f'{before}<parameter name="place"{attributes}{behind}', [BERGEN], "")
        for model, before, behind in (
            ("qwen3.6", "<tool_call>\n<function=look_up>\n", "\n</function>\n</tool_call>"),
            ("my-model", '<invoke name="look_up">', "</invoke>"),
        )
        for attributes in (
            ' value="Bergen" type="string"/>', " value='Bergen' string='true' />", ' type="string" value="Bergen"/>',
            ' value="Bergen" type="string"></parameter>', ' value="Bergen">\n</parameter>',
        )
    ),
    *(
        (model, f'{before}<parameter name="command" value="{value}"/>{behind}', [("run", {"command": value})], "")
        for model, before, behind in (
            ("qwen3.6", "<tool_call>\n<function=run>\n", "\n</function>\n</tool_call>"),
            ("my-model", '<invoke name="run">', "</invoke>"),
        )
        for value in (
            'a "b" type c', 'a" type="b', 'grep " type=x', 'x" string="true" y', '<input id="q" type="number"/>', '<input id="q" type="text">',
        )
    ),
    *(
        (model, f"So.\n{call}", [BERGEN], "So.")
        for model in ("glm-4.7", "qwen3.6", "my-model")
        for call in (
            "<tool_call>look_up\n<arg_key>place</arg_key>\n<arg_value>Bergen</arg_value>\n",
            "<tool_call>\n<function=look_up>\n<parameter=place>\nBergen\n</parameter>",
            '<minimax:tool_call>\n<invoke name="look_up">\n<parameter name="place">Bergen</parameter>\n',
        )
    ),
    *(  # with its own closer a call is whole, and what it lacks is the client's to see
        ("qwen3.6", f"<tool_call>\n<function=look_up>\n<parameter=days>\n2\n</parameter>\n{behind}", calls, "")
        for behind, calls in (
            ("</function>", [DAYS]),
            ("</function>\n</tool", [DAYS]),
            ("</function>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", [DAYS, NOW]),
            ("<tool_call>\n<function=now>\n</function>\n</tool_call>", [DAYS, NOW]),
        )
    ),
    ("my-model", f"{GLM_LS.replace('ls', 'ls -l').removesuffix('</tool_call>')}\nThen.\n{GLM_LS.replace('ls', 'ls -l')}", [LS], ""),
    *(  # a call that lacks a closer does not quote the next one
        ("my-model", f"{text.replace(closer, '')}\n{text}\nMore.", [BERGEN, BERGEN], "More.")
        for text, closers in (
            ("<tool_call>look_up<arg_key>place</arg_key><arg_value>Bergen</arg_value></tool_call>", ("</arg_value>", "</tool_call>")),
            (dsml("｜"), ("</｜DSML｜parameter>", "\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>")),
            (
                '<minimax:tool_call>\n<invoke name="look_up">\n<parameter name="place">Bergen</parameter>\n</invoke>\n</minimax:tool_call>',
                ("</parameter>", "</invoke>"),
            ),
        )
        for closer in closers
    ),
    ("my-model", '<invoke name="now"/>', [NOW], ""),
    ("my-model", '<invoke name="run"><parameter name="command">echo "</parameter>"</parameter></invoke>', [("run", {"command": 'echo "</parameter>"'})], ""),
    ("glm-4.7", "<tool_call>look_up<arg_key>place</arg_key><arg_value>Bergen</arg_key><arg_key>days</arg_key><arg_value>2</arg_key></tool_call>", [TWO_DAYS], ""),
    ("glm-4.7", "<tool_call>run<arg_key>command</arg_key><arg_value>a</arg_key> b</arg_value></tool_call>", [("run", {"command": "a</arg_key> b"})], ""),
    *(
        (model, text.format(RUN.replace('"run"', '"functions.run"')), [LS], "")
        for model in ("qwen3-8b", "my-model")
        for text in ("{}", "```json\n{}\n```", "<tool_call>{}</tool_call>", "[TOOL_CALLS][{}]")
    ),
    ("devstral", 'So.\nrun[ARGS]{"command": "ls -l"}', [LS], "So."),
    ("my-model", "<tool_code>\nprint(default_api.look_up(place='Bergen'))\n</tool_code>", [BERGEN], ""),
    ("my-model", '[Tool Use: run]\n{"command": "ls -l"}', [LS], ""),
    ("hunyuan-a13b", f"<answer>\n```json\n{RUN}\n```\n</answer>", [LS], ""),
    ("my-model", '<function name="look_up"><parameter name="place" value="Bergen"/><parameter name="days" value="2"/></function>', [TWO_DAYS], ""),
    ("my-model", '<invoke name="run"><parameter name="command"><parameter name="command"></parameter></invoke>', [("run", {"command": '<parameter name="command">'})], ""),
    ("apertus-8b", '<|inner_prefix|>I look.<|tools_prefix|>[{"run":{"command":"ls -l"}}]<|tools_suffix|>', [LS], ""),
    ("apertus-8b", "<|inner_prefix|>I know it.<|inner_suffix|>Four.", [], "Four."),
    ("my-model", f'{{"thought": "I look.", "tool_calls": [{RUN}]}}', [LS], ""),
    *(("command-r", f"{before}Action:{blank}```json\n[\n{RUN}\n]\n```", [LS], "") for before, blank in (("", " "), ("", ""), ("Plan: I look.\n", " "))),
    *(("smollm3", f"<code>{line}run(command='ls -l'){line}</code>", [LS], "") for line in ("", "\n")),
    ("smollm3", "<think>So.</think>\nI look.\n<code>[now(), run(command='ls -l')]</code>", [NOW, LS], "I look."),
    ("my-model", r"run(command=“ls\t-l”)", [("run", {"command": "ls\t-l"})], ""),
    ("my-model", r'<tool_call>{"name": "run", "arguments": {“command”: “ls\t-l”}}</tool_call>', [("run", {"command": "ls\t-l"})], ""),
    ("my-model", f"So.<|flush|><|tool_calls|>{SOLAR}{SOLAR.replace('abc', '')}<|calls|>More.", [LS, LS], "So.<|flush|>More."),
    ("solar-open-100b", f"I look.\n{SOLAR}", [LS], "I look."),
    ("my-model", f"<tml:function_calls>\n{INVOKE}\n</tml:function_calls>", [LS], ""),
    ("my-model", f"<tool_calls>\n{INVOKE}\n</tool_calls>\nMore.", [LS], "More."),
    ("my-model", f"Look.\n<tvoe_calls>\n{INVOKE}\n{INVOKE}\n</tvoe_calls>", [LS, LS], "Look."),
    ("my-model", '<|tool_call|>{"name":"now","arguments":{}}<|/tool_call|>', [NOW], ""),
    (
        "muse-glimmer",
        '<|start|>assistant to=run<|message|><atem:function_calls>\n<atem:invoke name="run<|message|>">\n'
        '<atem:parameter name="command">ls -l</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>',
        [LS],
        "",
    ),
    ("cwm", "<tool: function>\nrun ls -l\n</tool>", [LS], ""),
    ("cwm", "<tool: run> ls -l </tool>", [LS], ""),
    ("cwm", "So.\n<tool: run ls -l </tool>\n<tool: function>\nnow\n</tool>", [LS, NOW], "So."),
    ("sarashina3", "<|tool_calls|>[{'name': 'look_up', 'arguments': {'place': 'Bergen', 'days': 3}}]", [("look_up", {"place": "Bergen", "days": 3})], ""),
    ("gpt-oss-20b", 'analysisI look.assistantcommentary to=functions.run json{"command":"ls -l"}', [LS], ""),
    ("gpt-oss-20b", 'analysisI look.assistant to=functions.runcommentary json{"command":"ls -l"}', [LS], ""),
    ("gpt-oss-20b", 'commentary to=functions.look_up json{"place":"Bergen"}', [BERGEN], ""),
    ("gpt-oss-20b", "analysisOne word: \"four\".assistantfinalfour", [], "four"),
    ("my-model", 'Thought: I look.\nAction: run\nAction Input: {"command":"ls -l"}', [LS], ""),
    ("my-model", 'Action: now\nAction Input: {}\nAction: run\nAction Input: {"command":"ls -l"}', [NOW, LS], ""),
    *(
        ("gemma-3", text, [LS], "")
        for call in ("default_api.run(command='ls -l')", "run(command=“ls -l”)")
        for text in (call, f"[{call}]", f"```tool_code\nprint({call})\n```")
    ),
    *(
        ("my-model", text, [LS], "")
        for call in ("{“name”: “run”, “arguments”: {“command”: “ls -l”}}",)
        for text in (call, f"```json\n{call}\n```", f"<tool_call>\n{call}\n</tool_call>")
    ),
    *(
        ("qwen3.6", HERMES.replace(right, wrong), [BERGEN], "")
        for right, wrong in (
            ('"name":', '"name:'), ('"look_up"', '"look_up'), ('"arguments":', '"arguments:'), ('"place":', '"place:'),
            ('"look_up",', '"look_up" '), ('"', "”"),
        )
    ),
    # a call's own closer is wrong, lost, or behind a brace too many
    *(
        ("qwen3-8b", f"So.\n<tool_call>\n{RUN}{end}\nMore.", [LS], "So.\nMore.")
        for end in ("}\n</tool_call>", "\n</tool_calls>", "</function>\n</tool_call>", "</function_call>", "<|/tool_call|>")
    ),
    *(("qwen3-8b", f"<tool_call>\n{RUN}{end}", [LS], "") for end in ("<|im_end|>", "\n</s>", "[|endofturn|]")),
    ("kimi-k2.6", f"<|tool_calls_section_begin|><|tool_call_begin|>{K2.replace('<|tool_call_end|>', '<|im_end|>')}", [LS], ""),
    ("kimi-k2.6", f"<|tool_calls_section_begin|><|tool_call_begin|>{K2.replace('}', '}}')}", [LS], ""),
    *(
        ("qwen3.6", f"<tool_call>\n<function=run>\n<parameter=command>\nls -l\n</parameter>\n{end}\nMore.", [LS], "More.")
        for end in ("</tool_call>", "</tool_calls>", "</function>\n</tool_calls>", "</invoke>\n</tool_call>")
    ),
    *(
        (model, text, calls, "")
        for model, start, tag, end, last in (
            ("qwen3.6", "<tool_call>\n<function={}>\n", "<parameter={}>\n", "\n</{}>\n", "</function>\n</tool_call>"),
            ("qwen3.6", "<function={}>", "<parameter={}>", "</{}>", "</function>"),
            ("my-model", "<function={}>", "<parameter={}>", "</{}>", "</function>"),
            ("minimax-m2.5", '<minimax:tool_call>\n<invoke name="{}">\n', '<parameter name="{}">', "</{}>\n", "</invoke>\n</minimax:tool_call>"),
        )
        for text, calls in (
            (f"{start.format('run')}{tag.format('command')}ls -l{end.format('command')}{last}", [LS]),
            (
                f"{start.format('look_up')}{tag.format('place')}Bergen{end.format('place')}"
                f"{tag.format('days')}2{end.format('days')}{last}", [TWO_DAYS]
            ),
            *(
                (f"{start.format('run')}{tag.format('command')}{value}{end.format('parameter')}{last}", [("run", {"command": value})])
                for value in ("<command>x</command>", "x</command>", "</command>\n</command>", "x</command>\n</run>")
            ),
        )
    ),
    (
        "qwen3.6", "<function=run>\n<parameter=command>\n<command>\nx\n</command>\n</function>",
        [("run", {"command": "<command>\nx\n</command>"})], ""
    ),
    *(
        ("deepseek-v4", dsml("｜").replace(f"</｜DSML｜{right}>", wrong), [BERGEN], "")
        for right, wrong in (
            ("parameter", "</parameter>"), ("invoke", "</invoke>"), ("invoke", "</｜DSML｜tool_call>"), ("invoke", ""),
            ("tool_calls", "</tool_calls>"),
        )
    ),
    *(
        ("glm-5", f"<tool_call>run<arg_key>command</arg_key><arg_value>ls -l{end}", [LS], "")
        for end in ("</parameter></tool_call>", "</value></tool_call>", "</arg_value></tool_calls>")
    ),
    ("glm-5", "<tool_call>run<arg_key>command</arg_key>ls -l</arg_value></tool_call>", [LS], ""),
    ("glm-4.6", "<tool_call>run\n<arg_key>command</arg_key>\nls -l</arg_value>\n</tool_call>", [LS], ""),
    ("gemma4:12b", f"<|tool_call>call:run{{command:{QUOTE}ls -l{QUOTE}}}}}<tool_call|>", [LS], ""),
    ("gpt-oss-20b", '<|channel|>commentary to=functions.run <|constrain|>json<|message|>{"command": "ls -l"}}<|call|>', [LS], ""),
    ("llama3.1:8b", f"{RUN}}}", [LS], ""),
    ("apertus-8b", '<|tools_prefix|>[{"run":{"command":"ls -l"}}]<|tools_suffix|><|assistant_end|>', [LS], ""),
    *(("my-model", text.format(RUN), [LS], said) for text, said in (("{}}}", ""), ("So.\n{}}}", "So."), ("```json\n{}}}\n```", ""))),
    *(("qwen3-8b", f"<tool_call>{RUN}{behind}</tool_call>", [LS], "") for behind in (";", "}};", ",")),
    # messages as text
    *(
        (model, text, [LS], "")
        for model in ("my-model", "gpt-oss-20b")
        for text in (
            f'{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_1","type":"function","function":{RUN}}}]}}',
            f'{{"content": "", "tool_calls": [{RUN}]}}',
            '{"recipient_name":"functions.run","parameters":{"command":"ls -l"}}',
            '```json\n{"tool_uses":[{"recipient_name":"functions.run","parameters":{"command":"ls -l"}}]}\n```',
            f'{{"function_calls": [{RUN}]}}',
        )
    ),
    ("my-model", '{"explanation": "I look.", "name": "run", "arguments": {"command": "ls -l"}}', [LS], ""),
    *(
        ("my-model", text.format(RUN), [LS], "I look.")
        for text in (
            '{{"role": "assistant", "content": "I look.", "tool_calls": [{}]}}',
            '\n\n{{"tool_calls": [{}], "content": "I look."}}',
            '{{"role": "assistant", "reasoning_content": "Well.", "content": "I look.", "function_call": {}}}<|im_end|>',
            "<think>Well.</think>\n{{'role': 'assistant', 'content': 'I look.', 'tool_calls': [{}]}}",
            '```json\n{{"role": "assistant", "content": "I look.\\n", "tool_calls": [{}]}}\n```',
        )
    ),
    *(
        ("my-model", text, [LS], "I look.")
        for text in (
            '{"content": "I look.", "name": "run", "arguments": "{\\"command\\": \\"ls -l\\"}"}',
            '{"name": "run", "arguments": {"command": "ls -l"}, "content": "I look."}',
        )
    ),
    (
        "my-model", f'{{"role": "assistant", "content": "I look.", "tool_calls": [{RUN}]}}\n{{"content": "Again.", "tool_calls": [{RUN}]}}',
        [LS, LS], "I look.\n\nAgain."
    ),
    ("my-model", '[Tool: run]({"command": "ls -l"})', [LS], ""),
    ("my-model", f"I look:\n\n- ```json\n  {RUN}\n  ```", [LS], "I look:\n\n-"),
    ("my-model", "<tool_code>\nprint(default_api.run(command='ls -l'))\n</tool_code>", [LS], ""),
    ("hunyuan-a13b", "<think>So.</think>\n<answer>\nFour.\n</answer>", [], "Four."),
    ("ui-tars", "Thought: I look.\nAction: run(command='ls -l')", [LS], "Thought: I look."),
]  # fmt: skip
"""A model, what it wrote, the calls, the text beside them."""

TEXT = [
    ("gemma4:12b", "The tags are <tool_call|> and <turn|>."),
    ("mistral:7b", "Before v11 [/TOOL_CALLS] was written by some."),
    ("qwen3.6", "It ends with <|im_end|> in the template."),
    ("my-model", "<tml:function_calls> is a tag, and so is </tml:function_calls>."),
    ("my-model", "call:look_up is how it begins"),
    ("my-model", "functions.run:0 is an id"),
    ("gpt-oss-20b", "analysis of the data, then assistant work"),
    ("gpt-oss-20b", 'So: analysisI look.assistantcommentary to=functions.run json{"command":"ls -l"}'),
    ("my-model", "analysisOne word: four.assistantfinalfour"),
    ("my-model", "Thought: I know it.\nFinal Answer: 4"),
    ("my-model", 'Action: run\nAction Input: {"command":"ls -l"}\nObservation: a.txt'),
    ("my-model", "{“name”: “Ada”, “n”: 1}"),
    ("hunyuan-a13b", "Put <answer> before it and `</answer>` behind."),
    ("cwm", "The <tool: tag is closed by </tool>"),
    ("my-model", "<|tool_call:begin|> begins a call, <|tool_call:end|> ends it."),
    ("my-model", f"In `{SOLAR}` stands a call."),
    ("my-model", f"> {SOLAR}"),
    ("qwen3.6", "Write `<function=now/>` for it."),
    ("my-model", f"In `{QWEN2[:-1]}` stands a call."),
    ("my-model", f"```\n# a call\n{QWEN2}```\nThat is all."),
    ("my-model", "✿FUNCTION✿: is followed by a name, ✿ARGS✿: by an object."),
    ("my-model", '✿FUNCTION✿: other\n✿ARGS✿: {"command":"ls -l"}\n'),
    ("kimi-k2.6", "The section <|tool_calls_section_begin|>functions.run:0 has no call."),
    ("kimi-k2.6", f"`<|tool_calls_section_begin|>{K2}` lacks a token."),
    ("my-model", f'{{"thought": "I look.", "tool_calls": [{RUN}]}}\nis the form.'),
    ("my-model", '{"thought": "I look.", "mood": "good"}'),
    ("my-model", '{"content": "I look.", "title": "run"}'),
    ("my-model", '{"explanation": "I look.", "command": "ls -l"}'),
    ("my-model", '{"role": "user", "content": "run ls"}'),
    ("my-model", '{"role": "assistant", "content": "I look."}'),
    ("my-model", '{"recipient_name": "Bo", "parameters": {"command": "ls -l"}}'),
    *(  # a message is a call only as the whole answer
        (model, text)
        for model in ("my-model", "gpt-oss-20b")
        for text in (
            f"So:\n{MESSAGE}",
            f"So:\n\n```json\n{MESSAGE}\n```",
            f"So:\n```json\n[{MESSAGE}]\n```",
            f"So:\n```json\n{MESSAGE[:-1]}\n```",
            f"So:\n```python\n{MESSAGE.replace('null', 'None')}\n```",
            f'So:\n{{"id": "m1", {MESSAGE[1:]}',
            f'So:\n{{"role": "assistant", "content": "", "function_call": {RUN}}}',
            f'{{"role": "user", "content": "run ls"}}\n{MESSAGE}',
            f'{{"role": "assistant", "content": "Hi."}}\n{MESSAGE}',
            f'{MESSAGE}\n{{"role": "tool", "content": "a.txt"}}',
        )
    ),
    ("my-model", f'{RUN[:-1]}, "timeout": 5}}}}'.replace("timeout", "days").replace("run", "look_up")),
    ("my-model", "[Tool: run]({base}/run) and [run](https://a.example)"),
    ("command-r", f"Action: ```json\n[{RUN}]\n```\nObservation: a.txt"),
    ("command-r", 'Action: ```json\n[{"tool_name": "directly-answer", "parameters": {}}]\n```'),
    ("smollm3", "Use <code>run(command='ls -l')</code> for it."),
    ("smollm3", "<code>run(command='ls -l')</code> lists the folder."),
    ("smollm3", "<code>x = run(command='ls -l')\nprint(x)</code>"),
    ("smollm3", "<code>shutil.copy(a, b)</code>"),
    ("my-model", 'So: `<invoke name="run"><parameter name="command" value="ls -l"/></invoke>`'),
    ("deepseek-v4", "The prefix is <｜DSML｜, the section tool_calls."),
    ("my-model", RUN.replace('"run"', '"functions.walk"')),
    ("my-model", 'run[0] is the first.\nrun[ARGS] takes {"command": "ls -l"}.'),
    ("my-model", '<tool_code>\nprint(run)\nprint(x.look_up(place="Bergen").text)\n</tool_code>'),
    ("my-model", '[Tool Use: run]\n{"command": "ls -l"}\nis what the log has.'),
    *(
        (model, f"So.\n<tool_call>{call}")
        for model in ("glm-4.7", "qwen3.6", "my-model")
        for call in (
            "look_up\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n",
            "look_up\n<arg_key>place</arg_key>\n<arg_value>Bergen\n",
            "\n<function=look_up>\n<parameter=days>\n2\n</parameter>\n",
            "\n<function=look_up>\n<parameter=place>\nBergen\n",
        )
    ),
]


def read(
    twin: ModuleType, model: str, text: str, size: int, streaming: int | Literal["buffered"] = "buffered"
) -> tuple[Calls, str]:
    """The calls and the visible text of an answer that comes in pieces of this size."""
    options = RouteOptions(calls=CallsConfig(recognise="any", argument_streaming=streaming))
    events = scanned(twin, format_for(model) or "auto", TOOLS, in_pieces(text, size), options=options)
    said = "".join(block.text for block in blocks(events) if block.kind == "text")
    return calls_and_text(events)[0], said


@every(("model", "text", "calls", "said"), READ)
def test_what_models_write_beside_their_form_is_read(
    twin: ModuleType, model: str, text: str, calls: list[tuple[str, dict[str, Any]]], said: str
) -> None:
    for size in (len(text), 1, 7):
        assert read(twin, model, text, size) == (calls, said)
    assert read(twin, model, text, 1, 0) == (calls, said)


@every(
    "text",
    [
        f"Plan: I look.\nAction: ```json\n[{RUN}]\n```",
        f"Thought: I look.\nAction: ```json\n[{RUN}]\n```",
        f'{{"thought": "I look.", "tool_calls": [{RUN}]}}',
        '{"thought": "I look.", "action": "run", "action_input": {"command": "ls -l"}}',
        '{"reasoning": "I look.", "tool": "run", "args": {"command": "ls -l"}}',
        f'{{"role": "assistant", "content": null, "reasoning_content": "I look.", "tool_calls": [{RUN}]}}',
        f'```json\n{{\n"thought" : "I l\\u006fok.",\n"tool_calls": [{RUN}]}}\n```',
    ],
)
def test_a_thought_before_calls_is_reasoning(twin: ModuleType, text: str) -> None:
    events = scanned(twin, "auto", TOOLS, in_pieces(text, 3), calls=CallsConfig(recognise="any"))
    assert [(block.kind, block.name or block.text) for block in blocks(events)] == [
        ("reasoning", "I look."),
        ("tool_call", "run"),
    ]


@every(
    "arguments",
    [
        {"content": "Oslo"},
        {"content": "Oslo", "tool": {"name": "a"}},
        {"thought": "Oslo", "input": {"a": 1}},
    ],
)
def test_an_argument_beside_the_name_is_not_said_too(twin: ModuleType, arguments: dict[str, Any]) -> None:
    properties = {key: {"type": "string" if isinstance(value, str) else "object"} for key, value in arguments.items()}
    tools = [{"name": "note", "parameters": {"type": "object", "properties": properties}}]
    text = json.dumps({"name": "note", **arguments})
    for count in (1, 2):
        events = scanned(twin, "auto", tools, ["\n".join([text] * count)], calls=CallsConfig(recognise="any"))
        assert calls_and_text(events) == ([("note", arguments)] * count, "")


def test_a_link_that_is_called_like_a_tool_is_not_held_back(twin: ModuleType) -> None:
    scanner = open_scanner("auto", TOOLS, options=route_options(), scanner=twin.CallScanner)
    text = "[run](https://a.example) and more"
    assert "".join(e.text for e in scanner.feed(text) if isinstance(e, Delta)) == text


def test_a_plan_of_several_lines_is_not_held_back(twin: ModuleType) -> None:
    scanner = open_scanner("auto", TOOLS, options=route_options(), scanner=twin.CallScanner)
    assert "".join(e.text for e in scanner.feed("Plan:\n1. I look.\n2. I") if isinstance(e, Delta)) == (
        "Plan:\n1. I look.\n2. I"
    )


@every(("model", "text"), TEXT)
def test_marks_that_frame_nothing_are_text(twin: ModuleType, model: str, text: str) -> None:
    for size in (len(text), 1, 7):
        assert read(twin, model, text, size) == ([], text)
