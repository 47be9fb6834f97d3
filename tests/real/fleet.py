"""A client on the official Python SDK that calls through a balancer without a pause, and says what it was told.

    python fleet.py PLAN.json

The twin of fleet.mjs, under version 1 and version 2 of the SDK.
"""

import contextlib
import importlib.util
import json
import logging
import sys
import threading
import time

import anyio
import mcp.client.streamable_http as streamable_http
from mcp.client.session import ClientSession
from mcp.shared._httpx_utils import create_mcp_http_client

VERSION_2 = importlib.util.find_spec("mcp_types") is not None
if VERSION_2:
    from mcp.client import Client

with open(sys.argv[1], encoding="utf8") as file:
    plan = json.load(file)

# This SDK does not always notice that a connection broke; then nobody but the clock says so.
PATIENCE = 30
PAUSE = 0.05
logging.disable(logging.CRITICAL)

over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
random = plan["seed"]


def below(end):
    global random
    random = (random * 1103515245 + 12345) & 0x7FFFFFFF
    return (random >> 8) % end


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


@contextlib.asynccontextmanager
async def streams():
    headers = {"Authorization": f"Bearer {plan['token']}"}
    async with create_mcp_http_client(headers=headers) as client:
        async with streamable_http.streamable_http_client(plan["url"], http_client=client) as opened:
            yield opened


@contextlib.asynccontextmanager
async def connected():
    if VERSION_2:
        async with Client(streams(), mode="legacy") as client:
            yield client
    else:
        async with streams() as (read, write, *_):
            async with ClientSession(read, write) as session:
                await session.initialize()
                yield session


class Broke(Exception):
    pass


async def call(session, server, tool, key):
    arguments = {"text": key} if tool == "echo" else {"key": key}
    if tool == "slow":
        arguments["ms"] = below(120)
    began = time.monotonic()
    told = {"broke": "cancelled"}
    try:
        with anyio.fail_after(PATIENCE):
            value = await session.call_tool(f"{server}__{tool}", arguments)
        told = {"result": value.model_dump(mode="json", by_alias=True, exclude_none=True)}
    except TimeoutError:
        told = {"broke": "nothing was heard"}
    except Exception as error:
        code = getattr(getattr(error, "error", error), "code", None)
        is_of_server = isinstance(code, int) and code < 0 and code not in (-32000, -32001)
        told = {"error": {"code": code, "message": str(error)}} if is_of_server else {"broke": repr(error)[:300]}
    finally:
        say({"key": key, "server": server, "tool": tool, "ms": int((time.monotonic() - began) * 1000), **told})
    if "broke" in told:
        raise Broke
    return "result" in told and told["result"].get("isError") is not True


async def live(state):
    async with connected() as session:
        while not over.is_set():
            state["count"] += 1
            server = plan["servers"][below(len(plan["servers"]))]
            tool = ["effect", "effect", "echo", "slow"][below(4)]
            await call(session, server, tool, f"{plan['name']}-{state['count']}")
        for server in plan["servers"]:
            while server not in state["reached"]:
                state["count"] += 1
                if await call(session, server, "echo", f"{plan['name']}-{state['count']}"):
                    state["reached"].add(server)
                    say({"reached": server})
                else:
                    await anyio.sleep(PAUSE)


async def main():
    state = {"count": 0, "reached": set()}
    while len(state["reached"]) < len(plan["servers"]):
        # Whatever ends the session (its groups of tasks say it in many ways), the program connects again.
        try:
            await live(state)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            await anyio.sleep(PAUSE)
    say({"done": True})


anyio.run(main)
