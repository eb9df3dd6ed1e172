"""Downloading the output of runs: what is offered, what is accepted, how it is fetched."""
