"""`toolwire doctor`: what is wrong with a set-up, as far as it can be seen from here.

Each module looks at one side of it and gives `Finding`s: `installation`, `machine`, `files`, `stores`, `servers`. They
change nothing, and wait for nobody longer than they say.
"""
