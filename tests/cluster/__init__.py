"""A cluster of real processes, under faults."""
