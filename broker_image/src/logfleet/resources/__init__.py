"""What the Cluster and Topic resources mean, for operator and command line alike."""
