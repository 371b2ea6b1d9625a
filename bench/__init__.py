"""Measurements. `python -m bench` runs them all and prints one table; a name runs one of them."""
