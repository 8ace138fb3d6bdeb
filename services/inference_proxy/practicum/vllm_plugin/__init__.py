"""What is loaded into vLLM: a weight-transfer engine that reads checkpoints from disk."""
