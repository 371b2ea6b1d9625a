"""Our own client: small and blocking, for the command line and whoever reads or writes in bulk."""
