"""The error catalogue, docs/errors.md: what the code can say, what the tests have seen it say."""
