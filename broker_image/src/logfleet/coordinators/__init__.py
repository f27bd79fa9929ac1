"""What coordinators of all kinds share, without clock, log and network.

The runtime for them is `logfleet.node.coordinators`.
"""
