"""Rules of one partition's replicas (KIP-101, 279, 320, 497, 595, 841, 903, 966).

The leader, the followers and the controller call the same functions.
"""
