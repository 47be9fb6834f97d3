"""A plain MCP client on the official Python SDK, driven by a plan and judged by its reader.

    python client.py PLAN.json > REPORT.json

The twin of client.mjs: same plan, same report. It runs under version 1 and version 2 of the SDK.
"""

import contextlib
import importlib.util
import json
import sys
import time

import anyio
import mcp.client.sse as sse
import mcp.client.stdio as stdio
import mcp.client.streamable_http as streamable_http
from mcp.shared._httpx_utils import create_mcp_http_client

# Version 2 moved the protocol's types into a package of their own.
VERSION_2 = importlib.util.find_spec("mcp_types") is not None
if VERSION_2:
    import mcp_types as types
    from mcp.client import Client
else:
    import mcp.types as types
from mcp.client.session import ClientSession

with open(sys.argv[1], encoding="utf8") as file:
    plan = json.load(file)

# How long a step with `until` is repeated, and how long it rests between.
UNTIL_SECONDS = 60
PAUSE_SECONDS = 0.2

report = {"sdk": "v2" if VERSION_2 else "v1", "steps": [], "asked": []}
lines: list[str] = []


class Overheard(stdio.TextReceiveStream):
    """The SDK's own reader, with an ear on the text before the SDK parses it."""

    rest = ""

    async def receive(self) -> str:
        text = await super().receive()
        *whole, self.rest = (self.rest + text).split("\n")
        lines.extend(whole)
        return text


stdio.TextReceiveStream = Overheard


def plain(value):
    """A model of the SDK as the JSON a reader expects."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return value


def answering(method, model):
    """A callback that notes what was asked and answers as the plan says; none where the plan has no answer."""
    answer = plan.get("answers", {}).get(method)
    if answer is None:
        return None

    async def callback(context, params=None):
        report["asked"].append({"method": method, "params": plain(params)})
        return model.model_validate(answer)

    return callback


async def perform(session, step, told):
    match step["do"]:
        case "list":
            return await session.list_tools()
        case "call":
            progress = told["progress"] = []

            async def note(done, total=None, message=None):
                update = {"progress": done, "total": total, "message": message}
                progress.append({key: value for key, value in update.items() if value is not None})

            started = time.monotonic()
            while True:
                value = await session.call_tool(
                    step["tool"],
                    step.get("arguments") or {},
                    progress_callback=note if step.get("progress") else None,
                )
                # A gateway may still be starting servers; the plan says what it waits for.
                if step.get("until", "") in json.dumps(plain(value)) or time.monotonic() - started > UNTIL_SECONDS:
                    return value
                lines.clear()
                await anyio.sleep(PAUSE_SECONDS)
        case "many":
            values = [None] * len(step["calls"])

            async def one(index, call):
                values[index] = plain(await session.call_tool(call["tool"], call["arguments"]))

            async with anyio.create_task_group() as group:
                for index, call in enumerate(step["calls"]):
                    group.start_soon(one, index, call)
            return values
        case other:
            raise ValueError(f"the plan has an unknown step: {other}")


@contextlib.asynccontextmanager
async def over_http(url, headers):
    """A server that wants to see a token."""
    async with create_mcp_http_client(headers=headers) as client:
        async with streamable_http.streamable_http_client(url, http_client=client) as streams:
            yield streams


def reached():
    """The way to the server: one that is started, or one that runs already."""
    server = plan["server"]
    if "url" in server:
        if server["over"] == "sse":
            return sse.sse_client(server["url"], headers=server["headers"])
        return over_http(server["url"], server["headers"])
    parameters = stdio.StdioServerParameters(
        command=server["command"], args=server["args"], env=server.get("env"), cwd=server.get("cwd")
    )
    return stdio.stdio_client(parameters)


@contextlib.asynccontextmanager
async def connected():
    callbacks = {
        "sampling_callback": answering("sampling/createMessage", types.CreateMessageResult),
        "elicitation_callback": answering("elicitation/create", types.ElicitResult),
        "list_roots_callback": answering("roots/list", types.ListRootsResult),
    }
    if VERSION_2:
        async with Client(reached(), mode=plan.get("era", "legacy"), **callbacks) as client:
            report["server"] = plain(client.server_info)
            report["instructions"] = client.instructions
            report["capabilities"] = plain(client.server_capabilities)
            yield client
    else:
        # Over HTTP version 1 also says how to learn the session's id.
        async with reached() as (read, write, *_):
            async with ClientSession(read, write, **callbacks) as session:
                hello = await session.initialize()
                report["server"] = plain(hello.serverInfo)
                report["instructions"] = hello.instructions
                report["capabilities"] = plain(hello.capabilities)
                yield session


async def main():
    async with connected() as session:
        report["handshake"] = lines.copy()
        for step in plan["steps"]:
            lines.clear()
            told = {"name": step["name"]}
            report["steps"].append(told)
            try:
                told["value"] = plain(await perform(session, step, told))
            except Exception as error:  # the reader decides whether an error was right
                told["error"] = {"code": getattr(error, "code", None), "message": str(error)}
            told["lines"] = lines.copy()


anyio.run(main)
json.dump(report, sys.stdout)
sys.stdout.write("\n")
