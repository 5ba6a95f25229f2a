"""Finds tool calls and reasoning in a model's text: grammars (formats as plain data), the plan (a grammar prepared for
scanning), and the Python scanner. The compiled one is `proxy/_fastparse.pyx`; its parts (`*.pxi`) are in this folder
too. The modules in `parts` are written once: `fast` compiles the same source."""
