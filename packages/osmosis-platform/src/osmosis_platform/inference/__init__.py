"""The public OpenAI-compatible endpoint and its API keys."""
