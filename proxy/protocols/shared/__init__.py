"""Code that several protocols use: ids, tool names, stored turns, JSON on the wire, errors inside answers."""
