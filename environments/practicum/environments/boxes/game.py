"""The game: a box holds the number of another box, or the coin. Whoever opens them one after the other finds it.

Contents are drawn for each session and known to nobody else, so nothing can be memorised and no answer exists
without the tool.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

HOPS = (1, 2, 3)
# Without 11, 22, …: copying a repeated digit is the hard case for a model of a million parameters.
NUMBERS = [number for number in range(10, 100) if number % 11]

TOOL_NAME = "open"
TOOL_DESCRIPTION = "open a box"
TOOL_SCHEMA = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


@dataclass(frozen=True, slots=True)
class Boxes:
    """`chain`: the boxes to open, in order. `coin`: what the last one holds."""

    chain: tuple[int, ...]
    coin: int

    @property
    def instruction(self) -> str:
        """What the agent is asked to do."""
        return f"open box {self.chain[0]}"

    def open(self, box: int) -> str:
        """What a box holds: `box M`, `coin V`, or `empty`."""
        if box not in self.chain:
            return "empty"
        place = self.chain.index(box) + 1
        return f"box {self.chain[place]}" if place < len(self.chain) else f"coin {self.coin}"

    def to_json(self) -> str:
        """As private environment parameters of a task."""
        return json.dumps({"chain": list(self.chain), "coin": self.coin})

    @classmethod
    def from_json(cls, text: str) -> Boxes:
        """From a task's environment parameters. ValueError says what is wrong with them."""
        values = json.loads(text or "{}")
        chain, coin = values.get("chain"), values.get("coin")
        if not (isinstance(chain, list) and chain and all(isinstance(box, int) for box in chain)):
            raise ValueError("parameter `chain` has to be a list of box numbers, such as [17, 42]")
        if not isinstance(coin, int):
            raise ValueError("parameter `coin` has to be a number")
        return cls(tuple(chain), coin)


def draw(source: random.Random) -> Boxes:
    """A game of one to three boxes."""
    *chain, coin = source.sample(NUMBERS, source.choice(HOPS) + 1)
    return Boxes(tuple(chain), coin)
