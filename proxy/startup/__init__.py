"""Work that is done once, when an application starts: names are checked, model servers identified and tested."""
