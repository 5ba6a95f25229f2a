"""Parts of the scanner of which there is one text. As they are they belong to the Python scanner; `proxy.scan.fast` has
the same compiled."""
