"""Parts of the scanner with a single text: the Python scanner uses them directly, `proxy.scan.fast` compiles them."""
