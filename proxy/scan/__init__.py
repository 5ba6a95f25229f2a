"""Text into fields, character by character: grammars as plain data, the plan of one, and the Python twins of
`proxy/_fastparse.pyx`, whose parts (`*.pxi`) lie beside them."""
