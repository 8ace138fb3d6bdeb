"""What operators see: metrics, events, traces, and the views of tasks, queues and nodes."""
