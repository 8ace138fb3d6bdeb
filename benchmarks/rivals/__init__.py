"""Adapters: each runs one way to carry rollouts, ours or a rival's, in an environment of its own."""
