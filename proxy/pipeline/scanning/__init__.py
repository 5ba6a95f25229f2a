"""The scan for calls in an answer, and the detection of its reasoning."""
