"""Programs for developers and evaluators: the demo and its model, measurements, and replays of captures."""
