"""Telling other systems what happened in a workspace."""
