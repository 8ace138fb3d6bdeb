"""Tasks from their submit to their end."""
