"""Codex's app-server as a model server: JSON-RPC over the pipes of a process that the gateway starts, or over a
WebSocket (docs/adr/0032).

| Module | Content |
| --- | --- |
| `backend` | the backend, and one turn from its request to its end |
| `link` | keeps one connection open: opens, watches and reopens it |
| `rpc` | requests, answers and notifications of many threads on one connection |
| `stdio`, `websocket` | two transports for frames (`transport`) |
| `thread_request` | a model request as parameters of the app-server |
| `answer` | the app-server's messages about a turn, as events |
| `failures` | its errors, as errors of the gateway |
"""
