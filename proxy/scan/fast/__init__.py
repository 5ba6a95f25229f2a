"""The parts in `proxy.scan.parts`, compiled: for each a module of the same name, if it was built, with the C types that
its `.pxd` declares. Nothing else is in here, and only `proxy._fastparse` imports from here."""
