"""The console: pages about a running fleet, for people, from one process beside it."""
