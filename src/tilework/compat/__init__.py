"""Programs written for other libraries, run over the public API of tilework."""
