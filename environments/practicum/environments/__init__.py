"""The bundled environments, each an MCP server of its own."""
