"""Starts the game's MCP server: `python -m practicum.environments.boxes`."""

from __future__ import annotations

from practicum.environments.boxes.server import main

if __name__ == "__main__":
    main()
