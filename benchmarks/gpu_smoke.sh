#!/usr/bin/env bash
# Checks one GPU against the CPU, then prints sampling and training rates and the share of the chip's peak.
#   benchmarks/gpu_smoke.sh [MODEL_FOLDER]
# Without a folder a random model of the Qwen3-0.6B shape is used, and the shipped tiny model for the checks. Needs the trainer's
# environment (`make setup`) with a torch that was built for the GPU; PYTHON names another interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
exec "${PYTHON:-.venv-trainer/bin/python}" -m benchmarks.gpu_parts.smoke "$@"
