"""Fleets that Cluster resources ask for: what exists, what to do next, doing it, saying so."""
