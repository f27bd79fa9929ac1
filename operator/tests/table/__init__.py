"""See operator/tests/__init__.py."""
