"""The catalogue of rollouts found in workspace repositories."""
