"""A small server with either Python SDK, over HTTP: `server.py streamable-http|sse PORT`."""

import sys

over, port = sys.argv[1], int(sys.argv[2])

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context

    server = MCPServer("python")
    place = {"host": "127.0.0.1", "port": port}
except ImportError:
    from mcp.server.fastmcp import Context, FastMCP

    server = FastMCP("python", host="127.0.0.1", port=port)
    place = {}


@server.tool()
def echo(message: str) -> str:
    """Says it again."""
    return message


@server.tool()
async def steps(count: int, context: Context) -> str:
    """Takes so many steps and tells of each."""
    for step in range(count):
        await context.report_progress(step + 1, count)
    return f"{count} steps"


server.run(transport=over, **place)
