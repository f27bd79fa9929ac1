"""One broker process: connections, request handlers, partition logs, loops."""
