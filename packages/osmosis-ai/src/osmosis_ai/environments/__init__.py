"""Python environments of rollouts: what a rollout's project file asks for, with the SDK of this installation."""
