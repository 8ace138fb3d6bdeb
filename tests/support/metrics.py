"""Reads a service's metrics as Prometheus does."""

from __future__ import annotations

import http.client
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress

from prometheus_client.parser import text_string_to_metric_families


class Samples:
    """What one scrape told."""

    def __init__(self, text: str) -> None:
        families = text_string_to_metric_families(text)
        self._samples = [sample for family in families for sample in family.samples]

    def __repr__(self) -> str:
        return "\n".join(f"{s.name}{s.labels} {s.value}" for s in self._samples if not s.name.endswith("_bucket"))

    def __call__(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name with these labels; 0 when there are none."""
        return sum(s.value for s in self._samples if s.name == name and labels.items() <= s.labels.items())

    def tells(self, name: str) -> bool:
        """Whether there is a sample of this name."""
        return any(sample.name == name for sample in self._samples)

    def of(self, name: str, label: str) -> dict[str, float]:
        """The samples of a name, by one label."""
        return {s.labels[label]: s.value for s in self._samples if s.name == name}


def scrape(address: str) -> Samples:
    """What a service tells now."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return Samples(response.read().decode())


def scrape_until(address: str, condition: Callable[[Samples], bool], seconds: float = 20) -> Samples:
    """Scrapes again and again until it tells what it should; a service may be away meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        samples = Samples("")
        with suppress(OSError, http.client.HTTPException):
            samples = scrape(address)
        if condition(samples):
            return samples
        assert time.monotonic() < deadline, samples
        time.sleep(0.02)
