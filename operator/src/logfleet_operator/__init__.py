"""The operator: level-based reconciliation of Cluster and Topic resources."""
