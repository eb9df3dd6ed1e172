"""Evaluation runs."""
