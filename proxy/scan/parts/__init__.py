"""Parts of the scanner with a single text: the Python scanner uses them directly, `toolwire.scan.fast` compiles
them."""
