"""From text to fields, character by character: grammars as plain data, the plan of a grammar, and the Python twins of
`proxy/_fastparse.pyx`, whose parts (`*.pxi`) are in this folder too. The modules in `parts` have no twin: `fast`
compiles the same text."""
