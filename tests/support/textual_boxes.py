"""The game of boxes for the player, which learnt that ids are texts."""

from __future__ import annotations

from typing import Any

from practicum.environments.boxes import server
from practicum.environments.boxes.game import Boxes

strict = server.call


def call(params: dict[str, Any], boxes: Boxes) -> dict[str, Any]:
    """Opens a box whose id is a text."""
    return strict(params | {"arguments": {"id": int(params["arguments"]["id"])}}, boxes)


def main() -> None:
    """Serves the game."""
    server.call = call
    server.main()


if __name__ == "__main__":
    main()
