"""The inspector: what the model was sent, what it wrote and what the client got, side by side, in a page (R25)."""
