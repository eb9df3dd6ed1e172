"""Bodies of ``osmosis benchmark``."""
