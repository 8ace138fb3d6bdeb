"""The executor: accepts tasks, gives each rollout to the least-loaded node, keeps what came of it."""
