"""The parts in `toolwire.scan.parts`, compiled: for each a module of the same name, if it was built, with the C types
that its `.pxd` declares. Nothing else is in here, and only `toolwire._fastparse` imports from here."""
