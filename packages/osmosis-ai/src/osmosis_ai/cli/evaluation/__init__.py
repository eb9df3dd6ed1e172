"""Bodies of ``osmosis eval``."""
