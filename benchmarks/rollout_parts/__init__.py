"""What the rollouts benchmark runs: the same one-turn agent behind our rollout server and behind one written by hand."""
