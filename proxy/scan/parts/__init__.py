"""Parts of the scanner of which there is one text. As they are they belong to the Python scanner; `toolwire.scan.fast`
has the same compiled."""
