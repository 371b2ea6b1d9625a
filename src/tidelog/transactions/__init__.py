"""Transactions over partitions, and the producers that own them."""
