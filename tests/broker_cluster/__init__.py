"""Whole brokers in one simulated cluster."""
