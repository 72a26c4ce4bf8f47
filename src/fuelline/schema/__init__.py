"""The nouns everyone speaks. Import them from their files: `wire` must load nothing else."""
