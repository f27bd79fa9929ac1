"""Reading a server.properties: its text, variables, outdated names, and environment variables."""
