"""Development rollout servers: one rollout at one commit behind an address, for trying it by hand."""
