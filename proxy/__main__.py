"""`python -m toolwire` is `toolwire`."""

from .cli import main

if __name__ == "__main__":
    main(prog_name="toolwire")
