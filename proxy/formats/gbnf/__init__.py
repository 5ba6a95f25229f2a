"""Constraints for model servers: grammars in llama.cpp's notation (GBNF), and structural tags."""
