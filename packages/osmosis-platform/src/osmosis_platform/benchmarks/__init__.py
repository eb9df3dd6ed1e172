"""Benchmarks: this platform keeps a catalogue without entries, and says so."""
