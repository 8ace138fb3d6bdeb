"""Which of several executors on one database is the active one."""
