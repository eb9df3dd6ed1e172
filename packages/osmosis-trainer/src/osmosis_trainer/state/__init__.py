"""Durable state of a run: exact resume, checkpoints, publishing them."""
