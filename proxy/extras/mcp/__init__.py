"""MCP servers as sources of tools (R26, docs/adr/0041).

| module | content |
| --- | --- |
| `server` | one server: the tools that are offered, its calls, its connection |
| `from_clients` | the servers that clients name in their requests |
| `hosting` | the host process, as the gateway sees it |
| `frames` | the messages between gateway and host |
| `host` | the host process: speaks MCP with one server |
| `pipes`, `addresses` | connections to a server: a process, or HTTP |
| `invalid_tools` | removes invalid tools from a server's list |
| `contents` | translates results of calls for models |

Only the modules that run in the host (the last four rows) import the MCP SDK, which is large. The gateway never imports
it.
"""
