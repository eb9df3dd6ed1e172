"""The public inference endpoint and its API keys."""
