"""`toolwire tune`: finds the settings with which a model calls tools best, by testing it (R23.5).

From the inside out: `matching` compares values with expected ones, `cases` has the questions, `printed` finds calls
that stayed text, `scoring` gives points for answers, `space` lists the candidates, `halving` decides which candidate
gets which question next, `gateway` sends questions through the gateway, `tuner` runs it all, `show` and `report` print
it.
"""
