"""What `python -m bench spark` is made of."""
