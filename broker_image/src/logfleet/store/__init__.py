"""The metadata store as a broker uses it: opening it, following it, claiming keys in it."""
