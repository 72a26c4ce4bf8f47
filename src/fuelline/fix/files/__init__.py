"""Files that the job reads from elsewhere: packed data sets and a local cache."""
