"""Reception of requests and sending of answers: the outermost layer of the gateway."""
