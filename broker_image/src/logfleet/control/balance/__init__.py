"""Where replicas should be, and the moves that bring them there."""
