"""HTTP/1.1 as `onebus serve` speaks it: few steps between the bytes of a request and those of its answer."""
