"""A machine of its own around a broker process: see `sitecustomize`, which Python loads by that
name when this folder is on its path."""
