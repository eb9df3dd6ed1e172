"""Pages that keep themselves up to date: streams of server-sent events that say which runs and datasets changed."""
