"""The consumers' side: trajectories with cursors, acks and credits, and what is pruned after them."""
