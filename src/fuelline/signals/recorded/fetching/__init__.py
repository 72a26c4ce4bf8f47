"""What prepares batches did meanwhile: fetches, crews, their stacks, and the storage they read."""
