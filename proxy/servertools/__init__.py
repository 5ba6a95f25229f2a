"""Server-side tools: tools that the gateway itself runs. They come from a folder of Python modules (R15) and from MCP
servers (R26).

| module | content |
| --- | --- |
| `parameters` | reading and checking the arguments of a call |
| `shape` | defaults, integers and known members, from the JSON Schema |
| `definition` | the checks of a module's `TOOLS`, and their error messages |
| `process`, `pool` | one worker process; all worker processes of a folder |
| `worker` | the code inside a worker process; needs the standard library only |
| `output_log` | output of handlers, written to the log |
| `loading` | loads the tools of one file |
| `calls` | states and result of one call |
| `source` | the protocol `ToolSource`: the tools on offer, and how their calls are run |
| `folder` | loads all modules, watches for changes, replaces the tools |
| `mcp` | servers of the Model Context Protocol |
| `joined` | several sources combined into one |

The folder's tools are trusted code: they have the rights of the gateway's user (docs/explanation/threat-model.md). The
limits here contain mistakes of handlers that block, crash or return invalid values; they are not a sandbox.
"""
