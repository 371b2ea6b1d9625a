"""Replication of one partition, as a machine without I/O."""
