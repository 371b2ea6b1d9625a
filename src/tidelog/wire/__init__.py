"""Bytes to requests and back, for both ends of a connection. Nothing here does I/O."""
