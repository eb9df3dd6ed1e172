"""Bodies of ``osmosis dataset``."""
