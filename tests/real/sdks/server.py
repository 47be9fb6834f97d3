"""One tool on any version of the Python SDK, over stdio: `server.py low|high FOLDER…`.

The folders hold the package `mcp` of that version and what it needs in an older version than the environment has.
"""

import sys

level = sys.argv[1]
sys.path[:0] = sys.argv[2:]


def low() -> None:
    import anyio
    import mcp.types as types
    from mcp.server import Server
    from mcp.server.stdio import stdio_server

    server = Server("python")

    @server.list_tools()
    async def list_tools() -> list[types.Tool]:
        schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        return [types.Tool(name="echo", description="Says it again.", inputSchema=schema)]

    @server.call_tool()
    async def call_tool(name: str, arguments: dict) -> list[types.TextContent]:
        return [types.TextContent(type="text", text=arguments["message"])]

    async def run() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(run)


def high() -> None:
    try:
        from mcp.server import MCPServer as Server
    except ImportError:
        from mcp.server.fastmcp import FastMCP as Server

    server = Server("python")

    @server.tool()
    def echo(message: str) -> str:
        """Says it again."""
        return message

    server.run(transport="stdio")


{"low": low, "high": high}[level]()
