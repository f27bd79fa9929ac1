"""What the Cluster, Topic and Rebalance resources mean, for operator and command line."""
