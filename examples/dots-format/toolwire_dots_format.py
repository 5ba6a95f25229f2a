"""The tool-call format of the dots models::

    <dots_function_call>
    <invoke name="get_weather">
    <parameter name="city">Oslo</parameter>
    </invoke>
    </dots_function_call>

In the gateway's configuration::

    routes:
      - model: dots*
        options: {format: dots}
"""

from __future__ import annotations

from toolwire.formats.base import VERBATIM, BlockSyntax, Branch, Grammar, Layout, Tagged, make_format

# Reading. Nodes follow the opener; at each node, the literal selects the branch, and the branch names the next node.
GRAMMAR = Grammar(
    syntaxes=(
        BlockSyntax(
            opener="<dots_function_call>",
            closer="</dots_function_call>",
            body=(
                (Branch(literal="<invoke name=", read="word", field="name", then=1),),
                (Branch(literal=">", then=2),),
                (
                    Branch(literal="<parameter name=", read="word", field="key", then=3),
                    Branch(literal="</invoke>", then=5),
                ),
                (Branch(literal=">", read="text", field="value", then=4),),
                (Branch(literal="</parameter>", then=2),),
                (
                    Branch(literal="<invoke name=", read="word", field="name", then=1),  # one more call
                    Branch(literal="</dots_function_call>"),
                ),
            ),
        ),
    ),
)

# Writing: into the prompt, into the history, and into grammars for constrained decoding.
LAYOUT = Layout(
    first="<dots_function_call>\n",
    opener='<invoke name="',
    name="plain",
    middle='">\n',
    arguments=Tagged(opener='<parameter name="', strings='">', closer="</parameter>\n", stops=("</parameter>",)),
    closer="</invoke>",
    separator="\n",
    last="\n</dots_function_call>",
)

FORMAT = make_format("dots", GRAMMAR, LAYOUT, notes=VERBATIM)
