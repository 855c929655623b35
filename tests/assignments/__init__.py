"""The solutions of the assignments in the example course."""
