"""HTTP interface of the platform."""
