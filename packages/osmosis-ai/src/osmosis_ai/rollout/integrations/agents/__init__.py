"""One module per agent framework; each needs the extra of its name."""

__all__: list[str] = []
