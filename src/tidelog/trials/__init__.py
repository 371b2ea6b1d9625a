"""Clusters of the production machines in one process, explored from a seed."""
