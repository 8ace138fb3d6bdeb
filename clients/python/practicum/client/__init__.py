"""The Python client: submit tasks, stream trajectories."""
