"""Where a configuration comes from, and whether it can be used: files, the environment, flags, and every mistake in
them at once."""
