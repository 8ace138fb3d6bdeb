"""The nodes' side: gives out work, takes results, watches over leases."""
