"""How fast will this model serve this traffic on that machine, and how sure are you?"""

__all__ = ["__version__"]

__version__ = "0.1.0"
