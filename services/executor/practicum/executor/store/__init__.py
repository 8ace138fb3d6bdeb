"""What is remembered: tables, the batch that one transaction writes, and who writes it."""
