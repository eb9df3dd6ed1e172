"""Evaluation runs: submit, follow, retry, download."""
