"""The quickstart's environment: find the coin by opening boxes."""
