"""Users, browser sessions, personal tokens and device login."""
