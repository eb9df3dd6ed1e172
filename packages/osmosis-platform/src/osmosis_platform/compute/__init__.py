"""Processes: rollout servers, workers and the inference server; their environments and sandbox."""
