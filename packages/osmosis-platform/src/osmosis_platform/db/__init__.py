"""Engine, session, column types and migrations."""
