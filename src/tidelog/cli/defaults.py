"""What commands assume where nothing else is said."""

from typing import Final

DEFAULT_FOLDER: Final = "./tidelog-data"
"""Where `tidelog server` keeps its data, and where others look for it."""
