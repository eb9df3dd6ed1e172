"""Environments, sandboxes and the process supervisor."""
