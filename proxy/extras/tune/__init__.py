"""`toolwire tune`: which way of teaching tools suits a model best, found by asking it (R23.5).

From the inside out: `matching` compares a value with what was expected, `cases` are the questions, `printed` finds
calls that stayed text, `scoring` says how far an answer came, `space` which ways there are, `halving` who is asked what
next, `asking` puts a question through the gateway, `tuner` holds them together, `show` and `report` tell about it.
"""
