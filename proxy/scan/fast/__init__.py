"""The modules of `toolwire.scan.parts`, compiled with the C types in their `.pxd` files, if they were built. Only
`toolwire._fastparse` imports them."""
