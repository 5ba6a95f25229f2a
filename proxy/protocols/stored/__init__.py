"""The stored form of turns, whatever protocol they came from."""
