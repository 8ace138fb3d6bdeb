"""The node: runs agents, and brings back exact trajectories."""
