"""One module per noun. They declare commands and import nothing heavy; each body imports its own work."""
