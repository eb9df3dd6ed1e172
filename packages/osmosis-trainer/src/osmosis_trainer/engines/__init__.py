"""Engines: what samples tokens and computes gradients. `protocol` has the verbs; one folder per implementation."""
