"""Output in three modes: rich for people, plain for shells, json for programs."""
