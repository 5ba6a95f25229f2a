"""What is done once, when an application starts: names are looked up, model servers introduced, first requests
tried."""
