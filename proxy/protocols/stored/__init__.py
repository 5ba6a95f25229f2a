"""What a store keeps of a turn, whatever protocol it came from."""
