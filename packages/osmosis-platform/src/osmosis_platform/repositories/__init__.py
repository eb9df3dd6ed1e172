"""The built-in git host, repositories and sync."""
