"""What every run worker shares: its spec, its lifeline and its line to the platform."""
