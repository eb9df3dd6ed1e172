"""Evaluations on this machine: the same runner and results as on the platform, kept in a folder."""
