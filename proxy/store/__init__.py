"""Where responses are kept between requests. `base.py` says what a store is; one file for each kind."""
