"""Durable jobs with leases."""
