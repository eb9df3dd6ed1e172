"""Training runs and their checkpoints."""
