"""What the gateway says about itself: access line, metrics, traces, log."""
