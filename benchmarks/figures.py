"""Figures beside their bars, as every benchmark and every acceptance prints them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and its bar: at most so much, or at least, or none when it is printed beside."""

    what: str
    value: float
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool:
        """Whether the bar is met."""
        if self.at_most is not None and self.value > self.at_most:
            return False
        return self.at_least is None or self.value >= self.at_least

    @property
    def bar(self) -> str:
        """The bar as a person reads it."""
        bars = (("≤", self.at_most), ("≥", self.at_least))
        return " and ".join(f"{sign} {bar:g}{self.unit}" for sign, bar in bars if bar is not None)


def report(title: str, figures: Sequence[Figure], *, method: str) -> int:
    """Prints the table. Returns the exit status: 1 when a bar is missed."""
    table = Table(title=title, title_justify="left", caption=method, caption_justify="left")
    for column in ("what", "measured", "bar", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    for figure in figures:
        sign = "" if not figure.bar else "✓" if figure.met else "✗"
        table.add_row(figure.what, f"{figure.value:.4g}{figure.unit}", figure.bar, sign)
    Console(width=120).print(table)
    return int(not all(figure.met for figure in figures))
