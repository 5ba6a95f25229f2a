"""The task of `tests/clients/task.py` by pydantic-ai, as often as the argument says.

What to do comes as JSON, what was done goes out as JSON, a line for each.
"""

import asyncio
import json
import sys

from anthropic import AsyncAnthropic
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider


async def work(task) -> None:
    files = dict(task["files"])
    calls = []
    client = AsyncAnthropic(base_url=task["url"], api_key="k")
    agent = Agent(AnthropicModel("some-model", provider=AnthropicProvider(anthropic_client=client)))

    @agent.tool_plain
    async def read_file(path: str) -> str:
        """Read a text file."""
        calls.append(["read_file", {"path": path}])
        return files[path]

    @agent.tool_plain
    async def write_file(path: str, content: str) -> str:
        """Write a text file."""
        calls.append(["write_file", {"path": path, "content": content}])
        files[path] = content
        return "written"

    if task["streamed"]:

        async def drain(_context, events) -> None:
            async for _ in events:
                pass

        result = await agent.run(task["ask"], event_stream_handler=drain)
    else:
        result = await agent.run(task["ask"])
    replies = [message for message in result.all_messages() if message.kind == "response"]
    said = ["".join(part.content for part in reply.parts if part.part_kind == "text") for reply in replies]
    usage = [reply.usage.input_tokens > 0 and reply.usage.output_tokens > 0 for reply in replies]
    print(json.dumps({"calls": calls, "files": files, "said": said, "usage": usage}))


for each in json.loads(sys.argv[1]):
    asyncio.run(work(each))
