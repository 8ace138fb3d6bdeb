"""What the benchmarks of the executor share: load, empty nodes, and what the kernel counts."""
