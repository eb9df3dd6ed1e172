"""``osmosis eval upload``: a local evaluation becomes a run on the platform."""
