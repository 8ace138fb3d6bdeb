"""The `practicum` command: starts the suite on one machine, and talks to its services."""
