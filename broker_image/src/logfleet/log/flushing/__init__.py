"""What makes a log durable: what is not flushed yet, and the threads that flush it."""
