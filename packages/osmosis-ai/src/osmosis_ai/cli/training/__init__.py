"""Bodies of ``osmosis train``."""
