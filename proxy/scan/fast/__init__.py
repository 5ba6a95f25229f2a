"""The modules of `proxy.scan.parts`, compiled with the C types in their `.pxd` files, if they were built. Only
`proxy._fastparse` imports them."""
