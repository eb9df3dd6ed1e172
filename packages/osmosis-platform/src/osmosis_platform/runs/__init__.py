"""What evaluation and training runs share: status, progress, logs, metrics, artifacts, stop."""
