"""Codex's app-server as a model server: JSON-RPC over the pipes of a process that the gateway runs, or over a
WebSocket (docs/adr/0032).

| Module | What is in it |
| --- | --- |
| `backend` | the backend, and one turn from its request to its end |
| `link` | a connection that is kept: made, watched, made again |
| `rpc` | requests, answers and notifications of many threads on one connection |
| `stdio`, `websocket` | how frames get there and back (`transport`) |
| `asking` | a request of the model as what the server is sent |
| `answer` | what the server says of a turn, as events |
| `failures` | its errors, as the gateway's |
"""
