"""Benchmarks: one file each, `run() -> list[Result]`, always beside a named alternative measured in the same process."""
