"""The ``osmosis`` command line."""
