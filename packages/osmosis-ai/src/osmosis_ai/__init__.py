"""SDK and command line of Osmosis."""
