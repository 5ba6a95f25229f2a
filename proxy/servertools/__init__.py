"""Server-side tools, which the gateway itself runs: a folder of Python modules (R15), and MCP servers (R26).

| module | reason to change |
| --- | --- |
| `parameters` | how arguments are read and checked |
| `shape` | what a schema says besides: defaults, integers, known members |
| `definition` | what a module may declare, and the errors that say what is wrong |
| `process`, `pool` | worker processes: one of them, and all of a folder |
| `worker` | what runs a module and its handlers there: a package that needs the standard library only |
| `printed` | what handlers print, in the log |
| `loading` | how one file becomes tools |
| `calls` | what becomes of one call: states, results |
| `source` | what a source of tools is, whatever it is: what is on offer, and who runs its calls |
| `folder` | which tools there are now: loading all modules, watching for changes, swapping |
| `mcp` | servers of the Model Context Protocol |
| `joined` | several sources as one: who has a name |

The folder's tools are trusted code: they have the rights of the gateway's user (docs/explanation/security.md). What is
done here about handlers that block, crash or return junk keeps mistakes small; it is no sandbox.
"""
