"""Tells a test what only a process itself can know: see `sitecustomize`, which Python loads by that
name when this folder is on its path."""
