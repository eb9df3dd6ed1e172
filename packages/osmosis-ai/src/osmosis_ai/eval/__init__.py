"""Evaluations: the runner, its policies, its numbers and its worker."""
