"""Text into fields, character by character: grammars as plain data, the plan of one, and the Python twins of
`proxy/_fastparse.pyx`, whose parts (`*.pxi`) lie beside them. Of the parts in `parts` there is no twin: the compiled
scanner has them from `fast`, where the same text is compiled."""
