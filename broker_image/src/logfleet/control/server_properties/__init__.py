"""What people bring in a server.properties: its text, its variables, names of other times, and the same as environment variables."""
