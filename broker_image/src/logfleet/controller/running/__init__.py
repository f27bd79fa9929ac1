"""The controller on a broker: its election, its term, requests that are sent to it."""
