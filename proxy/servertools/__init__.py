"""Server-side tools, which the gateway itself runs: a folder of Python modules (R15), and MCP servers (R26).

| module | reason to change |
| --- | --- |
| `parameters` | how arguments are read and checked |
| `shape` | what a schema says besides: defaults, integers, known members |
| `definition` | what a module may declare, and the errors that say what is wrong |
| `loading` | how one file becomes tools |
| `threads`, `coroutine_runner`, `quiet` | how a handler is run so that it harms nothing but its own call |
| `calls` | what becomes of one call: states, results, time limits |
| `source` | what a source of tools is, whatever it is: what is on offer, and who runs its calls |
| `folder` | which tools there are now: loading all modules, watching for changes, swapping |
| `mcp` | servers of the Model Context Protocol |
| `joined` | several sources as one: who has a name |

The folder's tools are trusted code: they run in the gateway's process with its rights
(docs/explanation/security.md). What is done here about handlers that block, raise or return junk keeps mistakes small;
it is no sandbox.
"""
