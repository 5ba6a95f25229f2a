"""Tools for people who look at the gateway: the demo and its model, measurements, and captures that are run again."""
