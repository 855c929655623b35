"""A run at home: from its request to its directory, its summary and its tables."""
