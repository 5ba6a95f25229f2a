"""Calls as models write them when the markup goes wrong: openers garbled or lost, closers missing or doubled, dialects
mixed, spellings that no template has (R30.1). All of them are our own.

    for output in DAMAGED:  # output.text, output.calls, output.visible
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

TOOLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "shell": {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    "fetch_page": {
        "properties": {"url": {"type": "string"}, "depth": {"type": "integer"}, "raw": {"type": "boolean"}},
        "required": ["url"],
    },
    "save_note": {
        "properties": {"title": {"type": "string"}, "body": {"type": "string"}, "tags": {"type": "array"}},
        "required": ["title", "body"],
    },
    "list-rooms": {"properties": {}},
    "set_lamp": {
        "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}, "level": {"type": "number"}},
        "required": ["room", "on"],
    },
    "open_skill": {"properties": {"name": {"type": "string"}}, "required": ["name"]},
    "route": {
        "properties": {"from": {"type": "string"}, "class": {"type": "string"}, "stops": {"type": "integer"}},
        "required": ["from"],
    },
    "run_job": {
        "properties": {
            "type": {"type": "string"},
            "input": {"type": "string"},
            "arguments": {"type": "object"},
            "tool": {"type": "object"},
        },
        "required": ["type"],
    },
}
"""The tools on offer: the properties and the required ones."""


def offered() -> list[dict[str, Any]]:
    """The tools as Chat has them."""
    return [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", **schema}}}
        for name, schema in TOOLS.items()
    ]


class Output(NamedTuple):
    """What a model wrote, the calls that it means, and the text beside them."""

    text: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    visible: str = ""


SHELL: Final = ("shell", {"cmd": "ls -la"})
PAGE: Final = ("fetch_page", {"url": "http://a.example/x?y=1"})
DEEP: Final = ("fetch_page", {"url": "http://a.example", "depth": 2})
NOTE: Final = ("save_note", {"title": "Milk", "body": "Buy 2 l"})
ROOMS: Final = ("list-rooms", {})
LAMP: Final = ("set_lamp", {"room": "hall", "on": True, "level": 0.5})
SKILL: Final = ("open_skill", {"name": "diff"})


def _outputs() -> Iterator[Output]:
    def one(text: str, *calls: tuple[str, Mapping[str, Any]], visible: str = "") -> Output:
        return Output(text, calls, visible)

    # the opener is garbled
    yield one("<tool>shell\n<parameter=cmd>\nls -la\n</parameter>\n</function>\n</tool_call>", SHELL)
    yield one(
        "<tools_call>\n<function=shell>\n<parameter=cmd>\nls -la\n</parameter>\n</function>\n</tools_call>", SHELL
    )
    yield one("<functions=shell>\n<parameter=cmd>\nls -la\n</parameter>\n</functions>", SHELL)
    yield one("<function name=shell>\n<parameter=cmd>\nls -la\n</parameter>\n</function>", SHELL)
    yield one("<function_name>shell</function_name>\n<parameter=cmd>\nls -la\n</parameter>\n</function>", SHELL)
    yield one("<func=fetch_page><param=url>http://a.example</param><param=depth>2</param></func>", DEEP)
    yield one("<tool_name>save_note</tool_name>\n<title>Milk</title>\n<body>Buy 2 l</body>\n</tool>", NOTE)
    yield one('<invoke=shell>\n<parameter name="cmd">ls -la</parameter>\n</invoke>', SHELL)
    yield one("<parameter=shell>\n<parameter=cmd>\nls -la\n</parameter>\n</function>", SHELL)
    yield one('<call name="fetch_page"><arg name="url">http://a.example</arg><arg name="depth">2</arg></call>', DEEP)
    yield one("<use_tool>\n<name>shell</name>\n<arguments>\n<cmd>ls -la</cmd>\n</arguments>\n</use_tool>", SHELL)
    yield one('<action>shell</action>\n<parameters>{"cmd": "ls -la"}</parameters>', SHELL)
    # and lost
    yield one('fetch_page:3<|tool_call_argument_begin|>{"url": "http://a.example", "depth": 2}<|tool_call_end|>', DEEP)
    yield one('functions.shell:0<|tool_call_argument_begin|>{"cmd": "ls -la"}<|tool_call_end|>', SHELL)
    yield one("shell</name>\n<parameter=cmd>\nls -la\n</parameter>\n</function>\n</tool_call>", SHELL)
    yield one("shell>\n<parameter=cmd>\nls -la\n</parameter>\n</function>\n</tool_call>", SHELL)
    yield one('shell>{"cmd": "ls -la"}', SHELL)
    yield one('shell\n{"cmd": "ls -la"}', SHELL)
    yield one('save_note\n{"title": "Milk", "body": "Buy 2 l"}</tool_call>', NOTE)
    yield one('shell\n```json\n{"cmd": "ls -la"}\n```', SHELL)
    yield one('shell{"cmd": "ls -la"}', SHELL)
    yield one('shell{cmd:<|"|>ls -la<|"|>}', SHELL)
    yield one('shell{cmd:<|"|>ls -la<|"|>}<tool_call|>', SHELL)
    yield one('Sure.\n\nshell\n{"cmd": "ls -la"}', SHELL, visible="Sure.")
    yield one('call:fetch_page{url:<|"|>http://a.example<|"|>,depth:2}', DEEP)
    yield one('call:fetch_page{url:"http://a.example",depth:2}', DEEP)
    yield one("call:fetch_page{url: 'http://a.example', depth: 2}<tool_call|>", DEEP)
    yield one("<arg_key>cmd</arg_key>".join(("<tool_call>shell", "<arg_value>ls -la</arg_value>")), SHELL)
    yield one('<tool_call>shell cmd="ls -la"</tool_call>', SHELL)
    yield one("<tool_call>fetch_page\nurl=http://a.example\ndepth=2\n</tool_call>", DEEP)
    yield one("<tool_call>fetch_page url='http://a.example', depth=2</tool_call>", DEEP)
    # closers
    yield one("<tool_use>\n<name>shell</name>\n<parameter=cmd>\nls -la\n</parameter>", SHELL)
    yield one('<tool_use>\n```json\n{"name": "shell", "arguments": {"cmd": "ls -la"}}\n```\n</tool_use>', SHELL)
    yield one("<tool_use>\n<name>fetch_page</name>\n<parameter=url>\nhttp://a.example/x?y=1\n</parameter>", PAGE)
    yield one('<call>shell{"cmd": "ls -la"}</call></call></call>', SHELL)
    yield one("<function=shell>\n<parameter=cmd>\nls -la\n</function>\n</tool_call>", SHELL)
    yield one(
        "<tool>\n<function=fetch_page>\n<parameter=url>\nhttp://a.example\n<parameter=depth>\n2\n</parameter>\n</function>",
        DEEP,
    )
    yield one('<function=shell>{"cmd": "ls -la"}</parameter></function></tool_call>', SHELL)
    yield one("<function=shell>ls -la</parameter></function></tool_call>", SHELL)
    yield one("<function=shell>\nls -la\n</function>", SHELL)
    yield one("<tool_call>list-rooms</arg_value></tool_call>", ROOMS)
    # a second opener in place of another tag
    yield one("<tool_call>shell<tool_call>cmd</arg_key><arg_value>ls -la</arg_value></tool_call>", SHELL)
    yield one("<tool_call>shell\ncmd</arg_key>\n<arg_value>ls -la</arg_value>\n</tool_call>", SHELL)
    # dialects mixed
    yield one(
        '<function=fetch_page>\n<parameter name="url">http://a.example</parameter>\n<parameter name="depth">2</parameter>\n</function>',
        DEEP,
    )
    yield one(
        '<invoke name="fetch_page">\n<parameter=url>\nhttp://a.example\n</parameter>\n<parameter=depth>\n2\n</parameter>\n</invoke>',
        DEEP,
    )
    yield one(
        '<tool_call>\n<invoke name="shell">\n<parameter name="cmd">ls -la</parameter>\n</invoke>\n</tool_call>', SHELL
    )
    yield one(
        '<tool_calls>\n<invoke name="shell">\n<parameter name="cmd">ls -la</parameter>\n</invoke>\n</tool_calls>', SHELL
    )
    yield one('<tool_call>\nshell(cmd="ls -la")\n</tool_call>', SHELL)
    yield one('<tool_call>[shell(cmd="ls -la")]</tool_call>', SHELL)
    yield one("<tool_call>fetch_page(url='http://a.example', depth=2)</tool_call>", DEEP)
    yield one('<tool_call>call:shell{"cmd": "ls -la"}</tool_call>', SHELL)
    yield one('<tool_call>shell\n{"cmd": "ls -la"}</tool_call>', SHELL)
    yield one('<tool_call>{"tool": "shell", "cmd": "ls -la"}</tool_use>', SHELL)
    yield one(
        '<tool_call><arg_key>name</arg_key>shell{"cmd": "ls -la"}</tool_call>'.replace("<arg_key>name</arg_key>", ""),
        SHELL,
    )
    # brackets
    yield one('[Calling tool: shell({"cmd": "ls -la"})]', SHELL)
    yield one('[Calling tool: fetch_page(url="http://a.example", depth=2)]', DEEP)
    yield one('[Tool call: shell {"cmd": "ls -la"}]', SHELL)
    yield one('[tool_call: shell(cmd="ls -la")]', SHELL)
    yield one('I check.\n[Calling tool: shell({"cmd": "ls -la"})]', SHELL, visible="I check.")
    yield one('[TOOL_CALL]\nshell\n{"cmd": "ls -la"}\n[/TOOL_CALL]', SHELL)
    yield one('[Tool call: shell] {"cmd": "ls -la"}', SHELL)
    yield one('[TOOL_CALL: fetch_page]\n{"url": "http://a.example", "depth": 2}', DEEP)
    # labels
    yield one('Tool: shell\nArguments: {"cmd": "ls -la"}', SHELL)
    yield one('Tool: save_note\nInput:\n{"title": "Milk", "body": "Buy 2 l"}', NOTE)
    yield one('**Tool:** shell\n**Arguments:** {"cmd": "ls -la"}', SHELL)
    yield one('I look.\n\nTool call: shell\nParameters:\n```json\n{"cmd": "ls -la"}\n```', SHELL, visible="I look.")
    yield one('TOOL_CALL: {"name": "shell", "arguments": {"cmd": "ls -la"}}', SHELL)
    yield one('I look.\nFUNCTION_CALL: {"name": "shell", "arguments": {"cmd": "ls -la"}}', SHELL, visible="I look.")
    yield one('Function: fetch_page\nArguments: {"url": "http://a.example", "depth": 2}', DEEP)
    yield one(
        'Tool: shell\nArguments: {"cmd": "ls -la"}\n\nTool: open_skill\nArguments: {"name": "diff"}', SHELL, SKILL
    )
    yield one('Calling tool shell with arguments {"cmd": "ls -la"}', SHELL)
    # an agent's steps, as the whole answer
    yield one('Action: shell\nAction Input: {"cmd": "ls -la"}', SHELL)
    yield one('Action: open_skill\nAction Input:\n```json\n{"name": "diff"}\n```', SKILL)
    yield one('Thought: I look.\nAction: shell\nAction Input: {"cmd": "ls -la"}', SHELL, visible="I look.")
    # a tag that names the tool and has no end
    yield one('<function=shell({"cmd": "ls -la"})</function>', SHELL)
    yield one('<function=fetch_page{"url": "http://a.example", "depth": 2}</function>', DEEP)
    yield one('<function=fetch_page(url="http://a.example", depth=2)</function>', DEEP)
    yield one('<function(shell){"cmd": "ls -la"}</function>', SHELL)
    # Python as a method
    yield one('<|python_tag|>shell.call(cmd="ls -la")', SHELL)
    yield one('<|python_tag|>fetch_page.call(url="http://a.example", depth=2)', DEEP)
    # another vendor's prefix
    for vendor in ("acme", "longcat", "x1"):
        yield one(
            f"<{vendor}_tool_call>shell\n<{vendor}_arg_key>cmd</{vendor}_arg_key>\n"
            f"<{vendor}_arg_value>ls -la</{vendor}_arg_value>\n</{vendor}_tool_call>",
            SHELL,
        )
    # a tag of an argument twice, or lost
    yield one("<tool_call>shell<arg_key>cmd</arg_key><arg_value><arg_value>ls -la</arg_value></tool_call>", SHELL)
    yield one(
        '<function name="fetch_page"><param name="url">http://a.example<param name="depth">2</param></function>', DEEP
    )
    yield one(
        "<iquest_tool_call>fetch_page<arg_key>url</arg_key><arg_value>http://a.example<arg_key>depth</arg_key>"
        "<arg_value>2</arg_value></iquest_tool_call>",
        DEEP,
    )
    yield one(
        "<iquest_tool_call>fetch_page<arg_key>url</arg_key><arg_value>http://a.example</arg_value>depth</arg_key>"
        "<arg_value>2</arg_value></iquest_tool_call>",
        DEEP,
    )
    yield one(
        '<function name="save_note"><param name="title">Milk<param name="body">\tBuy 2 l\n</param></function>',
        ("save_note", {"title": "Milk", "body": "\tBuy 2 l\n"}),
    )
    # bars
    yield one(
        '<|tool▁calls▁begin|><|tool▁call▁begin|>function<|tool▁sep|>shell\n```json\n{"cmd": "ls -la"}\n```'
        "<|tool▁call▁end|><|tool▁calls▁end|>",
        SHELL,
    )
    yield one(
        'I look.<|tool▁calls▁begin|><|tool▁call▁begin|>shell<|tool▁sep|>{"cmd": "ls -la"}<|tool▁call▁end|>'
        '<|tool▁call▁begin|>open_skill<|tool▁sep|>{"name": "diff"}<|tool▁call▁end|><|tool▁calls▁end|>',
        SHELL,
        SKILL,
        visible="I look.",
    )
    for prefix in ("DSML", "GCML"):
        yield one(
            f'<{prefix} tool_calls>\n<{prefix} invoke name="shell">\n<{prefix} parameter name="cmd" string="true">'
            f"ls -la</{prefix} parameter>\n</{prefix} invoke>\n</{prefix} tool_calls>",
            SHELL,
        )
    for opened, closed in (
        ("<｜｜DSML｜｜", "</｜｜DSML｜｜"),
        ("<|DSML|", "</|DSML|"),
        ("<||DSML||", "</||DSML||"),
        ("‹‖DSML‖", "‹/‖DSML‖"),
        ("< | DSML | ", "</ | DSML | "),
    ):
        yield one(
            f'{opened}tool_calls>\n{opened}invoke name="fetch_page">\n'
            f'{opened}parameter name="url" string="true">http://a.example{closed}parameter>\n'
            f'{opened}parameter name="depth" string="false">2{closed}parameter>\n'
            f"{closed}invoke>\n{closed}tool_calls>",
            DEEP,
        )
    yield one(
        '‹‖DSML‖invoke name="shell">\n‹‖DSML‖parameter name="cmd">ls -la‹/‖DSML‖parameter>\n‹/‖DSML‖invoke>', SHELL
    )
    yield one('<|tool_call|>{"name": "shell", "arguments": {"cmd": "ls -la"}}<|/tool_call|>', SHELL)
    yield one('<｜DSML｜toolcall>shell\n\n```json\n{"cmd": "ls -la"}\n```', SHELL)
    # JSON with slips inside of markup
    yield one('<tool_call>\n{"name="shell", "arguments": {"cmd": "ls -la"}}\n</tool_call>', SHELL)
    yield one('<tool_call>{"name": "shell", "arguments": {"cmd": "ls -la"}</tool_call>', SHELL)
    yield one("<tool_use>{'name': 'set_lamp', 'input': {'room': 'hall', 'on': True, 'level': 0.5}}</tool_use>", LAMP)
    yield one(
        '<tool_use>{"name": "set_lamp", "input": {"room": "hall", "on": "true", "level": "0.5"}}</tool_use>', LAMP
    )
    yield one(
        '<tool_calls>\n{"name": "shell", "arguments": {"cmd": "ls -la"}}\n{"name": "list-rooms", "arguments": {}}\n</tool_calls>',
        SHELL,
        ROOMS,
    )
    yield one(
        '<tool_calls>[{"function": {"name": "shell", "arguments": "{\\"cmd\\": \\"ls -la\\"}"}}]</tool_calls>', SHELL
    )
    yield one('```{"tool_calls": [{"name": "shell", "arguments": {"cmd": "ls -la"}}]}```', SHELL)
    yield one('<function_call>shell: {"cmd": "ls -la"}</function_call>', SHELL)
    # one of two marks around a string is missing
    yield one('<|tool_call>call:shell{cmd:ls -la<|"|>}<tool_call|>', SHELL)
    yield one(
        '<|tool_call>call:save_note{title:Milk, two<|"|>,body:<|"|>Buy 2 l<|"|>}<tool_call|>'
        '<|tool_call>call:shell{cmd:<|"|>ls -la<|"|>}<tool_call|>',
        ("save_note", {"title": "Milk, two", "body": "Buy 2 l"}),
        SHELL,
    )
    yield one('<|tool_call>call:save_note{title:<|"|>Milk,body:<|"|>Buy 2 l<|"|>}<tool_call|>', NOTE)
    yield one(
        '<|tool_call>call:save_note{title:<|"|>a,body:<|"|>,body:<|"|>Buy 2 l<|"|>}<tool_call|>',
        ("save_note", {"title": "a,body:", "body": "Buy 2 l"}),
    )
    # arguments that are encoded twice
    yield one(
        '<|tool_call_begin|>functions.shell:0<|tool_call_argument_begin|>"{\\"cmd\\": \\"ls -la\\"}"<|tool_call_end|>'
        '<|tool_call_begin|>functions.list-rooms:1<|tool_call_argument_begin|>"{}"<|tool_call_end|>',
        SHELL,
        ROOMS,
    )
    yield one('<tool_call>{"tool": {"name": "shell", "arguments": {"cmd": "ls -la"}}}</tool_call>', SHELL)
    yield one(
        '<call>{"name": "run_job", "type": "a", "tool": {"name": "shell", "size": 3}}</call>',
        ("run_job", {"type": "a", "tool": {"name": "shell", "size": 3}}),
    )
    # namespaces
    yield one("<|tool_call>call:acme:mcp:notes:save_note{title: 'Milk', body: 'Buy 2 l'}<tool_call|>", NOTE)
    yield one("<tool_use><name>functions.shell</name><cmd>ls -la</cmd></tool_use>", SHELL)
    yield one('<invoke name="default_api.shell"><parameter name="cmd">ls -la</parameter></invoke>', SHELL)
    # names and keys that are words of the markup
    yield one("<tool_use>\n<name>open_skill</name>\n<parameter=name>\ndiff\n</parameter>\n</tool_use>", SKILL)
    yield one("<tool_call>open_skill<arg_key>name</arg_key><arg_value>diff</arg_value>", SKILL)
    yield one('<call>open_skill{"name": "diff"}</call>', SKILL)
    yield one("<tool_use><name>open_skill</name><name>diff</name></tool_use>", SKILL)
    yield one(
        "<tool_call>route(from='Oslo', class='b', stops=002)</tool_call>",
        ("route", {"from": "Oslo", "class": "b", "stops": 2}),
    )
    yield one(
        "<tool_use><name>run_job</name><type>etl</type><input>a.csv</input></tool_use>",
        ("run_job", {"type": "etl", "input": "a.csv"}),
    )
    yield one(
        '<call>run_job{"type": "etl", "arguments": {"a": 1}}</call>',
        ("run_job", {"type": "etl", "arguments": {"a": 1}}),
    )
    # values that hold markup and brackets
    yield one(
        "<tool_use>\n<name>shell</name>\n<parameter=cmd>\nif [ a \\< b ]; then echo '<b>x</b>'; fi\n</parameter>\n</tool_use>",
        ("shell", {"cmd": "if [ a \\< b ]; then echo '<b>x</b>'; fi"}),
    )
    yield one(
        "<|tool_call>call:shell{cmd:awk '{print $1}' a.txt}<tool_call|>", ("shell", {"cmd": "awk '{print $1}' a.txt"})
    )
    yield one(
        '<tool: function>\nshell find . -name "*.c" | wc -l\n</tool>', ("shell", {"cmd": 'find . -name "*.c" | wc -l'})
    )
    yield one(
        "<call>save_note{title: 'It''s', body: 'a, b: c'}</call>".replace("''", " "),
        ("save_note", {"title": "It s", "body": "a, b: c"}),
    )
    yield one(
        '<call>save_note{"title": "Milk", "body": "say "hi" to her"}</call>',
        ("save_note", {"title": "Milk", "body": 'say "hi" to her'}),
    )
    yield one(
        "<tool_use>\n<name>save_note</name>\n<parameter=title>\nMilk\n</parameter>\n<parameter=body>\nline 1\n\nline 2\n</parameter>\n</tool_use>",
        ("save_note", {"title": "Milk", "body": "line 1\n\nline 2"}),
    )
    yield one(
        '<tool_use><name>save_note</name><title>Milk</title><body>Buy 2 l</body><tags>["a", "b"]</tags></tool_use>',
        ("save_note", {"title": "Milk", "body": "Buy 2 l", "tags": ["a", "b"]}),
    )
    # the tool's name as a tag
    yield one("<shell>\n<cmd>ls -la</cmd>\n</shell>", SHELL)
    yield one("<fetch_page>\n<url>http://a.example</url>\n<depth>2</depth>\n</fetch_page>", DEEP)
    # numbers keep their text
    yield one(
        '<call>set_lamp{"arguments": {"room": "hall", "on": true, "level": 1e400}}</call>',
        ("set_lamp", {"room": "hall", "on": True, "level": float("inf")}),
    )
    # several
    yield one(
        "<parameter=shell>\n<parameter=cmd>\nls -la\n</parameter>\n</function>\n<parameter=open_skill>\n<parameter=name>\ndiff\n</parameter>\n</function>",
        SHELL,
        SKILL,
    )
    yield one('call:shell{cmd:"ls -la"}\ncall:open_skill{name:"diff"}', SHELL, SKILL)
    yield one('<call>shell{"cmd": "ls -la"}</call>\n<call>list-rooms{}</call>', SHELL, ROOMS)
    yield one('shell\n{"cmd": "ls -la"}\nopen_skill\n{"name": "diff"}', SHELL, SKILL)
    # prose before, stop tokens behind
    yield one(
        "One moment, please.\n\n<tool_use>\n<name>shell</name>\n<parameter=cmd>\nls -la\n</parameter>\n</tool_use>",
        SHELL,
        visible="One moment, please.",
    )
    yield one(
        "我先看一下。<tool_call><function=shell>ls -la\n</parameter></function></tool_call>",
        SHELL,
        visible="我先看一下。",
    )
    yield one('<call>shell{"cmd": "ls -la"}</call><|im_end|>', SHELL)
    yield one('[Calling tool: shell({"cmd": "ls -la"})]</s>', SHELL)
    yield one(
        "1. I look.\n2. I tell.\n\n<shell>\n<cmd>ls -la</cmd>\n</shell>\n", SHELL, visible="1. I look.\n2. I tell."
    )


DAMAGED: Final = tuple(_outputs())
