"""Commands that record a job, or take in what others recorded, and show it while it runs."""
