"""Training runs: submit, follow, stop."""
