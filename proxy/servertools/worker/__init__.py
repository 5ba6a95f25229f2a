"""The code inside a worker process, which runs tool modules.

| module | content |
| --- | --- |
| `importing` | running the text of a module, and its imports from the folder |
| `answers` | the text for the model, from a handler's return value or exception |
| `sources` | the files of a folder at one moment |
| `values` | transfer of a module's declarations to the gateway |
| `frames` | the bytes between gateway and worker |
| `leftovers` | ends processes that a handler left running |
| `guardian` | the process between the gateway and a worker |
| `serve` | the worker's main loop, the declarations of a module, and the limits that the system enforces |

It needs only the standard library, and little of that: a worker imports it at its start, before the tool's code. The
gateway's side is `toolwire.servertools.process` and `pool`.
"""
