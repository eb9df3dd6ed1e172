"""Parts of the platform benchmark that run in the platform's environment."""
