"""The committed test vectors are those of the present protocol, and both their forms agree."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format

SOURCE = Path(__file__).parents[1] / "vectors" / "make_vectors.py"
SPEC = importlib.util.spec_from_file_location("make_vectors", SOURCE)
assert SPEC is not None and SPEC.loader is not None
make_vectors: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make_vectors)

COMMITTED = json.loads(make_vectors.PATH.read_text(encoding="utf-8"))
CLASSES = {d.full_name: make_vectors.GetMessageClass(d) for d in make_vectors.descriptors()}


def test_the_committed_vectors_are_current() -> None:
    """A change of the protocol renews its vectors."""
    assert make_vectors.vectors() == COMMITTED


@pytest.mark.parametrize("vector", COMMITTED, ids=lambda v: v["type"].rpartition(".")[2])
def test_json_and_binary_of_a_vector_are_the_same_message(vector: dict[str, Any]) -> None:
    """Parsing either form gives the same message, which serializes to the same bytes."""
    kind = CLASSES[vector["type"]]
    from_binary = kind.FromString(bytes.fromhex(vector["hex"]))
    assert json_format.ParseDict(vector["json"], kind()) == from_binary
    assert from_binary.SerializeToString(deterministic=True).hex() == vector["hex"]


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_unknown_fields_survive_a_reader(name: str) -> None:
    """A neighbour's newer field is carried through, not refused."""
    newer = b"\xfa\x7f\x03new"  # field 2047, length-delimited
    assert CLASSES[name].FromString(newer).SerializeToString() == newer
