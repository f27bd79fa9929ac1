"""The meaning of the Cluster, Topic and Rebalance resources, for operator and command line."""
