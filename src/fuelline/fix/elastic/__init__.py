"""The elastic loader, inside the job: a DataLoader whose workers and prefetch follow demand."""
