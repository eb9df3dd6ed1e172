"""Policies of evaluations: what answers the model calls of the agent under test."""
