"""Labels as they are kept and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping

NONE: Mapping[str, str] = {}


def labels_json(labels: Mapping[str, str]) -> str:
    """The same text for the same labels."""
    return json.dumps(dict(labels), sort_keys=True) if labels else "{}"


def labels_of(text: str) -> Mapping[str, str]:
    """The labels of such a text. Those without any share one mapping."""
    return json.loads(text) if text != "{}" else NONE


def matches(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether all wanted labels are there."""
    return all(labels.get(key) == value for key, value in wanted.items())
