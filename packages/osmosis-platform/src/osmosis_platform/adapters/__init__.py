"""Base models, LoRA models and deployments."""
