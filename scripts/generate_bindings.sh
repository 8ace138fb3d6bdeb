#!/usr/bin/env bash
# Generates the committed Python bindings from proto/. With --check: fails when they are stale.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${VENV:-.venv}/bin
out=proto/python
check=${1:-}
if [ "$check" = --check ]; then out=$(mktemp -d); trap 'rm -rf "$out"' EXIT; fi
PATH="$PWD/$bin:$PATH" "$bin/python" -m grpc_tools.protoc -I proto \
  -I "$("$bin/python" -c 'import grpc_tools, pathlib; print(pathlib.Path(grpc_tools.__file__).parent / "_proto")')" \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" --mypy_grpc_out="$out" \
  proto/practicum/v1/*.proto
if [ "$check" = --check ]; then
  diff -r -x __pycache__ -x py.typed "$out/practicum/v1" proto/python/practicum/v1 \
    || { echo "bindings are stale: run 'make proto' and commit the result" >&2; exit 1; }
fi
touch "$out/practicum/v1/py.typed"
