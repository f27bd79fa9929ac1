"""Contexts: names for clusters, with their addresses and how they may be used."""
