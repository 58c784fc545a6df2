"""The worker's page: what a person sees of it in a browser, made on the server."""
