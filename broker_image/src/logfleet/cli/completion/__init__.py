"""Completion in shells: of commands and options, and of the names that a cluster has."""
