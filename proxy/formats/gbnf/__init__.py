"""What the model may write: grammars in the notation of llama.cpp, and structural tags."""
