"""What is said in rollouts: journals, messages, and who hears them."""
