"""Servers of the Model Context Protocol as sources of tools (R26, docs/adr/0041).

| module | reason to change |
| --- | --- |
| `server` | what a server is for the gateway: its tools, its calls, its connection |
| `listed`, `names` | which of its tools are offered, and what they are called |
| `secrets` | what of its configuration is hidden |
| `hosting` | the process that speaks with it, seen from the gateway |
| `frames` | what gateway and host say to each other |
| `host` | the process itself |
| `pipes`, `addresses` | how it reaches a server |
| `sifting` | what becomes of a broken tool in a list |
| `contents` | what becomes of a result |

Only what runs in the host (the last four rows) imports the SDK, which is large: the gateway never does.
"""
