"""What every service shares: errors with details, the server's bootstrap and shutdown, logging."""
