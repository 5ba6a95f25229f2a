"""What runs tool modules, in worker processes and (the first four) in threads of the gateway.

| module | reason to change |
| --- | --- |
| `importing` | how a module's text is run, and how it finds the modules beside it |
| `answers` | how what a handler gives or raises becomes a text |
| `declared` | where a module may have its tools and its handler |
| `sources` | the files of a folder at one moment |
| `values` | how what a module declares crosses from a worker to the gateway |
| `frames` | the bytes between them |
| `bounds` | what the system holds a worker to |
| `leftovers` | how processes end that a handler has left behind |
| `guardian` | the process between the gateway and a worker |
| `serve` | what a worker does |

Needs nothing but the standard library, and as little of it as possible: a worker imports this when it starts, and it
must be there before a tool's code is. The gateway's side is `toolwire.servertools.process` and `pool`.
"""
