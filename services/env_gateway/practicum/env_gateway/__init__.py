"""The environment gateway: isolated sessions over MCP tool servers."""
