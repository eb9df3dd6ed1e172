"""Evaluations: the runner and its policies, and the LLM judge (:mod:`osmosis_ai.eval.rubric`)."""
