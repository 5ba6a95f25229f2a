"""`toolwire doctor`: finds problems of an installation.

Each module examines one part and yields `Finding`s: `installation`, `machine`, `files`, `stores`, `servers`. None of
them changes anything, and each wait has a time limit.
"""
