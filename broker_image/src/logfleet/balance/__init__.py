"""Where replicas should be, the moves that bring them there, and carrying these out."""
