"""Submitting runs: what is checked here, what is asked, what is sent."""
