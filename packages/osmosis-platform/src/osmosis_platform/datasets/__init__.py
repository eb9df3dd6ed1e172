"""Datasets: upload, validation, rows."""
