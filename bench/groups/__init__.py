"""What `python -m bench groups` is made of."""
