"""Coordinating groups: the shell around logfleet.groups."""
