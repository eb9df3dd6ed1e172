"""The client side of an Osmosis platform: where it is, who is logged in, and its HTTP interface."""
