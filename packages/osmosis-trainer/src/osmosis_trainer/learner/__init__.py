"""What turns rewarded token sequences into an adapter update: advantages, losses, batcher, LoRA, optimizer."""
