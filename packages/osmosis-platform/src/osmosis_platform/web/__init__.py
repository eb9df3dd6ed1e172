"""Dashboard layout, components and static files."""
