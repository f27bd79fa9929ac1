"""What concerns one broker: its admin port, its cordon, its registration."""
