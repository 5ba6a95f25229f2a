"""Grammars for constrained decoding, in the notation of llama.cpp."""
