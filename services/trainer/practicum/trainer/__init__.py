"""The trainer: supervises runs of AReaL's asynchronous PPO."""
