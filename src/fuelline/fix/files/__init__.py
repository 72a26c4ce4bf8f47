"""Files that reach the job from elsewhere than they lie: packed data sets and a local cache."""
