"""An environment as its users write them: on the MCP SDK's own server."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("counter")
count = 0


@server.tool()
def increment(by: int = 1) -> int:
    """Adds to this session's counter."""
    global count
    count += by
    return count


def main() -> None:
    """Serves over stdio."""
    server.run("stdio")


if __name__ == "__main__":
    main()
