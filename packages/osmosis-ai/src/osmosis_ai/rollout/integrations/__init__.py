"""Connections between agent frameworks and rollouts."""

__all__: list[str] = []
