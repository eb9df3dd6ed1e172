"""Sampling engine and reinforcement learning of Osmosis."""
