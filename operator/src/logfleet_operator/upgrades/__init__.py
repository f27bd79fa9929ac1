"""Upgrades in two phases: the brokers' image, then the level of what they may write."""
