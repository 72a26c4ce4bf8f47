"""The nouns everyone speaks. Import them from their files: `wire` must stay free of dependencies."""
