"""An environment that writes down when it was acted upon, and by which process of it: one for each session."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("witness")


@server.tool()
def act() -> str:
    """Writes down that it was called."""
    with Path(sys.argv[1]).open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\n")
    return "done"


if __name__ == "__main__":
    server.run("stdio")
