"""The inspector: a page that shows the prompt, the model's output and the client's response side by side (R25)."""
