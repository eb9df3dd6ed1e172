"""Workspaces, members and roles."""
