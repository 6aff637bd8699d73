#!/bin/sh
# Everything worth knowing of training on one data-centre GPU, within 8 minutes; bench/gpu.py says what.
#   bench/gpu.sh [--dry-run] [--project FOLDER]     PYTHON=… chooses the interpreter
set -eu
cd "$(dirname "$0")/.."
if [ -z "${PYTHON:-}" ]; then
    if [ -x .venv/bin/python ]; then PYTHON=.venv/bin/python; else PYTHON=python3; fi
fi
export CUBLAS_WORKSPACE_CONFIG=:4096:8  # deterministic products ask for it before CUDA starts
if command -v timeout >/dev/null; then
    exec timeout 480 "$PYTHON" -m bench.gpu "$@"
fi
exec "$PYTHON" -m bench.gpu "$@"
