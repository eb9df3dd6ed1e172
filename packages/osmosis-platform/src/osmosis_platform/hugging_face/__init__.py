"""Uploads of checkpoints to Hugging Face, and the tokens for them."""

# What the last line of an upload's process begins with.
RESULT = "result:"
